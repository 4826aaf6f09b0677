//! A trait of the program that has methods for all types, with the names of those that the expansion needs.

use dlock::{Error, distributed_lock, key_of, keys_of};

trait Blanket {
    fn text(&self, _: &str) {}
    fn value<V: ?Sized>(&self, _: &V) {}
    fn finish(&self) {}
    fn push<V>(&self, _: V) {}
    fn kind(&self) {}
}

impl<T> Blanket for T {}

#[distributed_lock(key = "stock:<id>")]
async fn one(id: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["stock:<ids..>", "all"])]
async fn several(ids: &[u64]) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "stock:<id>", on_busy = call(instead))]
async fn called(id: u64) -> Result<u64, Error> {
    Ok(id)
}

async fn instead(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[test]
fn it_changes_no_key_and_no_check() {
    let any = 0_u8;
    any.text("");
    any.value("");
    any.finish();
    any.push("");
    any.kind();
    assert_eq!(key_of(one(42)).unwrap().to_string(), "stock:<42>");
    let keys: Vec<_> = keys_of(several(&[1, 2])).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["stock:<1>", "stock:<2>", "all"]);
    assert_eq!(key_of(called(7)).unwrap().to_string(), "stock:<7>");
}
