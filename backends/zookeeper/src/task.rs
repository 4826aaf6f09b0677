//! Requests that run to their end on our thread, whatever becomes of their caller.

use std::future::Future;

use dlock_contract::engine::background;
use dlock_contract::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

/// Runs a request on our thread. It goes on if the caller is not polled or dropped, so an abandon can follow it.
pub(crate) async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (tell, told) = oneshot::channel();
    background()?.spawn(async move {
        let _ = tell.send(work.await);
    });
    told.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "a request ended without an answer")))
}
