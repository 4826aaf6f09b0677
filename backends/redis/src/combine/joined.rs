//! A request that has joined a batch: it waits for its answers, and lets the batch leave that it has begun.
//!
//! Exists because the caller that begins a batch may be cancelled before the batch leaves. Without this, the other requests
//! of the batch would wait for the next look of dlock's own thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_contract::{Error, Result};
use tokio::sync::oneshot;

use crate::combine::combiner::{Answers, Combiner};

/// A request in a batch. It does not keep the request's commands: they would make the future large.
pub(crate) struct Joined {
    /// Present if the request has begun its batch.
    pub(crate) began: Option<Began>,
    pub(crate) answers: oneshot::Receiver<Result<Answers>>,
}

impl Joined {
    pub(crate) async fn answers(self) -> Result<Answers> {
        let Self { began, answers } = self;
        if let Some(began) = began {
            // Other tasks that are ready to run can join the batch first.
            tokio::task::yield_now().await;
            drop(began);
        }
        answers.await.unwrap_or_else(|_| Err(Error::outage("the connection to Redis has ended")))
    }
}

/// Lets the batch leave when it is dropped, also by a caller that is cancelled.
pub(crate) struct Began {
    pub(crate) combiner: Arc<Combiner>,
    pub(crate) number: u64,
}

impl Drop for Began {
    fn drop(&mut self) {
        let next = self.combiner.lock();
        if next.number == self.number {
            self.combiner.leave(next);
        }
    }
}

/// A request on its way, or a batch.
pub(crate) struct UnderWay(Arc<Combiner>);

impl UnderWay {
    pub(crate) fn new(combiner: &Arc<Combiner>) -> Self {
        combiner.under_way.fetch_add(1, Ordering::Relaxed);
        Self(combiner.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
