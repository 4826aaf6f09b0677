//! Requests that run to their end on our thread, even if their caller is dropped.

use std::future::Future;

use dlock_contract::engine::background;
use dlock_contract::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

/// Runs a request on our thread. It goes on if its caller is dropped or not polled, so an abandon can follow it in order.
pub(crate) async fn detached<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (sender, answer) = oneshot::channel();
    background()?.spawn(async move {
        let _ = sender.send(work.await);
    });
    answer.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "a request ended without an answer")))
}
