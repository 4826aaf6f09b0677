//! The end of a connection. Without it, a request that the client has lost would wait for ever.

use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering;

use ::redis::RedisResult;
use futures::future::{Either, select};
use tokio::sync::Notify;

use crate::sync::{AtomicBool, planted};

/// Whether the client has said that its connection has ended.
///
/// A request that is handed over at that very moment is neither sent nor refused: it stays in the client's queue, which
/// nobody reads any more, for as long as there are clones of the client.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    has: AtomicBool,
    news: Notify,
}

impl Ended {
    pub(crate) fn tell(&self) {
        self.has.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    /// The answer to a request, or the end of its connection. Then the outcome of the request is unknown.
    pub(crate) async fn or<T>(&self, request: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        match select(pin!(request), pin!(self.wait())).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the connection has ended").into()),
        }
    }

    async fn wait(&self) {
        if planted("the end is looked at before the listening") && !self.has.load(Ordering::Acquire) {
            return self.news.notified().await;
        }
        let mut news = pin!(self.news.notified());
        // Before the check, so that no end is missed in between.
        news.as_mut().enable();
        if !self.has.load(Ordering::Acquire) {
            news.await;
        }
    }
}
