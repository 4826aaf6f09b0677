//! Generics, lifetimes, where clauses and `impl Trait` stay as they were written.

use std::fmt::{Debug, Display};

use dlock::{Error, KeyPart, distributed_lock};

#[distributed_lock(key = "item:<id>")]
async fn generic<K, T>(id: K, value: T) -> Result<T, Error>
where
    K: KeyPart + Clone,
    T: Debug + Send,
{
    drop(id);
    Ok(value)
}

#[distributed_lock(key = "item:<name>")]
async fn borrowed<'a, 'b: 'a>(name: &'a str, other: &'b str) -> Result<&'a str, Error> {
    Ok(if name.is_empty() { other } else { name })
}

#[distributed_lock(key = "item:<name>")]
async fn elided(name: &str) -> Result<&str, Error> {
    Ok(name)
}

#[distributed_lock(key = "shard:<N>:<id>")]
async fn constant<const N: usize, const ON: bool>(id: u8) -> Result<[u8; N], Error> {
    Ok([if ON { id } else { 0 }; N])
}

#[distributed_lock(key = "item:<id>")]
async fn impl_argument(id: impl KeyPart, shown: impl Display) -> Result<String, Error> {
    drop(id);
    Ok(shown.to_string())
}

#[distributed_lock(key = "item:<id>")]
async fn impl_return(id: u8) -> Result<impl IntoIterator<Item = u8>, Error> {
    Ok(std::iter::repeat_n(1, usize::from(id)))
}

fn assert_send<T: Send>(_: T) {}

pub(crate) fn make() {
    assert_send(generic("a".to_string(), 5));
    assert_send(borrowed("a", "b"));
    assert_send(elided("a"));
    assert_send(constant::<3, true>(1));
    assert_send(impl_argument(1u8, "x"));
    assert_send(impl_return(3));
}
