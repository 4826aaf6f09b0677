//! Functions that return the work without having done it.

#![allow(unused, reason = "only the attribute is looked at")]

use std::future::Future;
use std::pin::Pin;

use dlock::{Error, distributed_lock};
use futures::future::BoxFuture;
use futures::stream::Stream;

#[distributed_lock(key = "a")]
fn impl_future() -> impl Future<Output = Result<(), Error>> {
    async { Ok(()) }
}

#[distributed_lock(key = "a")]
fn boxed() -> Pin<Box<dyn Future<Output = Result<(), Error>>>> {
    Box::pin(async move { Ok(()) })
}

#[distributed_lock(key = "a")]
fn alias() -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(async move { Ok(()) })
}

#[distributed_lock(key = "a")]
fn stream() -> impl Stream<Item = u8> {
    futures::stream::empty()
}

#[distributed_lock(key = "a")]
fn iterator() -> Result<Box<dyn Iterator<Item = u8>>, Error> {
    Ok(Box::new(std::iter::empty()))
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>>;

// Not told by its name, but no future can carry the error.
#[distributed_lock(key = "a")]
fn own_alias() -> Work {
    Box::pin(async move { Ok(()) })
}

#[distributed_lock(key = "a")]
fn lazy_iterator(n: u8) -> Result<impl Iterator<Item = u8>, Error> {
    Ok(std::iter::repeat_n(1, usize::from(n)))
}

// Nearly what #[async_trait] leaves behind, but the first statement would run without the lock.
#[distributed_lock(key = "a")]
fn work_before<'async_trait>() -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'async_trait>> {
    println!("unlocked");
    Box::pin(async move { Ok(()) })
}

#[distributed_lock(key = "a")]
fn work_around<'async_trait>() -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'async_trait>> {
    Box::pin(async move { Ok(()) }.into_future())
}

fn main() {}
