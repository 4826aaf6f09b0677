//! Work on our own thread, which runs to its end.

use dlock_contract::{Error, Result};
use dlock_store::background;
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

pub(super) fn failed() -> Error {
    Error::outage("a task of dlock's own thread failed")
}
