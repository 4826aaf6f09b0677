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
