//! A key can use every name that a parameter binds, and the fields behind it.

use dlock::{Error, distributed_lock};

struct Path<T>(T);
struct Item {
    id: u64,
    tags: (u8, (String, u8)),
    r#type: u8,
}

#[distributed_lock(key = "item:<id>")]
async fn tuple_struct(Path(id): Path<u64>) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "item:<a>:<b>")]
async fn tuple((a, mut b): (u8, u8)) -> Result<u8, Error> {
    b += a;
    Ok(b)
}

#[distributed_lock(key = "item:<id>:<kind>")]
async fn structure(Item { id, r#type: kind, .. }: Item) -> Result<u64, Error> {
    Ok(id + u64::from(kind))
}

#[distributed_lock(key = "item:<whole.0>:<first>")]
async fn nested(whole @ (first, _): (u8, u8), &[x, ..]: &[u8; 2]) -> Result<u8, Error> {
    Ok(whole.1 + first + x)
}

#[distributed_lock(key = "<item.id>:<item.tags.0>:<item.tags.1.0>:<item.type>:<item.r#type>")]
async fn fields(item: Item) -> Result<Item, Error> {
    Ok(item)
}

#[distributed_lock(key = "<fn>:<r#fn>")]
async fn raw_name(r#fn: u8) -> Result<u8, Error> {
    Ok(r#fn)
}

// Used in the key only: no warning about an unused parameter.
#[deny(unused)]
#[distributed_lock(key = "<id>")]
async fn key_only(id: u64, _: u8) -> Result<(), Error> {
    Ok(())
}

fn item() -> Item {
    Item { id: 1, tags: (1, (String::new(), 2)), r#type: 3 }
}

pub(crate) fn make() {
    drop(tuple_struct(Path(1)));
    drop(tuple((1, 2)));
    drop(structure(item()));
    drop(nested((1, 2), &[1, 2]));
    drop(fields(item()));
    drop(raw_name(1));
    drop(key_only(1, 2));
}
