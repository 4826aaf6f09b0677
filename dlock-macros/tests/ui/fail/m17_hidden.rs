//! Work that has not run, inside of what a function returns, behind a name: the lock would be gone before it runs.

#![allow(unused, reason = "only the attribute is looked at")]

use std::future::Future;
use std::pin::Pin;

use dlock::{Error, Outcome, distributed_lock, optimistic, scheduled_lock};

type Work = Pin<Box<dyn Future<Output = u8> + Send>>;
type Started = Result<Work, Error>;

fn work() -> Work {
    Box::pin(async { 5 })
}

#[distributed_lock(key = "a")]
fn in_result() -> Result<Work, Error> {
    Ok(work())
}

#[distributed_lock(key = "a")]
async fn in_result_async() -> Started {
    Ok(work())
}

#[distributed_lock(key = "a", on_busy = skip)]
async fn in_option() -> Option<Work> {
    Some(work())
}

#[distributed_lock(key = "a")]
fn in_outcome() -> Outcome<Work> {
    Outcome::Ran(work())
}

#[distributed_lock(key = "a", guard = held)]
async fn nested() -> Result<Option<Result<Work, u8>>, Error> {
    Ok(Some(Ok(work())))
}

#[distributed_lock(keys = ["a", "b"], guard = held)]
async fn several() -> Result<Work, Error> {
    Ok(work())
}

#[distributed_lock(key = "a")]
async fn nameless() -> Result<impl Future<Output = u8>, Error> {
    Ok(async { 5 })
}

#[distributed_lock(key = "a")]
async fn bounded<F: Future>(work: F) -> Result<F, Error> {
    Ok(work)
}

type Items = Pin<Box<dyn futures::Stream<Item = u8> + Send>>;

fn items() -> Items {
    Box::pin(futures::stream::iter([5]))
}

#[distributed_lock(key = "a")]
fn stream() -> Result<Items, Error> {
    Ok(items())
}

#[distributed_lock(key = "a")]
async fn nameless_stream() -> Result<impl futures::Stream<Item = u8>, Error> {
    Ok(items())
}

#[distributed_lock(key = "a")]
async fn in_tuple() -> Result<(u8, Items), Error> {
    Ok((5, items()))
}

#[distributed_lock(key = "a")]
async fn in_list() -> Result<Vec<Work>, Error> {
    Ok(vec![work()])
}

struct Query;

impl std::future::IntoFuture for Query {
    type Output = u8;
    type IntoFuture = Work;

    fn into_future(self) -> Work {
        work()
    }
}

#[distributed_lock(key = "a")]
fn becomes_future() -> Result<Query, Error> {
    Ok(Query)
}

#[scheduled_lock(name = "a", at_most = "1m")]
async fn scheduled() -> Result<Option<Work>, Error> {
    Ok(Some(work()))
}

struct Meets;

impl From<Error> for Meets {
    fn from(_: Error) -> Self {
        Meets
    }
}

impl dlock::Conflict for Meets {
    fn is_conflict(&self) -> bool {
        true
    }
}

#[optimistic]
async fn attempted() -> Result<Work, Meets> {
    Ok(work())
}

// Nobody can tell.
#[distributed_lock(key = "a")]
async fn any<T>(value: T) -> Result<T, Error> {
    Ok(value)
}

fn main() {}
