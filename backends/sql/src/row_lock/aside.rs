//! Work on our own thread, which runs to its end.

use std::panic::AssertUnwindSafe;

use dlock_contract::engine::background;
use dlock_contract::{Error, Result};
use futures::FutureExt;
use tokio::sync::oneshot;

/// Runs work on our thread to its end, whether anybody waits for it or not.
pub(super) fn ask_aside<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<oneshot::Receiver<T>> {
    let (tell, told) = oneshot::channel();
    background()?.spawn(async move {
        // The caller may be gone.
        let _ = tell.send(work.await);
    });
    Ok(told)
}

/// A request over a connection that the body has used. The client library may panic there after a statement that was given up
/// while its answer was read. Then nothing is known of the connection, and it is not used again.
pub(super) async fn guarded<T>(asking: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let panicked = |_| Err(sqlx::Error::Protocol("the client library panicked over what a statement has left".into()));
    AssertUnwindSafe(asking).catch_unwind().await.unwrap_or_else(panicked)
}

pub(super) fn failed() -> Error {
    Error::outage("a task of dlock's own thread failed")
}
