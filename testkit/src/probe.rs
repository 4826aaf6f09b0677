//! Small probes that the tests of several backends use.

use std::error::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Polls `future` this many times, with a pause after each poll, and then drops it. Gives its output if it was done
/// before.
pub async fn drop_after<F: Future>(polls: usize, pause: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        // No wake-up is needed, because the next poll comes by itself.
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await;
        }
    }
    None
}

/// All texts of an error and its causes, to search them for secrets.
pub fn text_of(error: &dyn Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(" {error} {error:?}");
        cause = error.source();
    }
    text
}
