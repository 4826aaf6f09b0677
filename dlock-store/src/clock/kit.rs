//! The test kit's clock: the ways to move it beside `advance`, and the error of a call that would wait for it for ever.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dlock_contract::{Error, ErrorKind};
use futures::future::BoxFuture;

use crate::clock::Clock;

/// How long a call waits, in real time, for a clock that nobody moves.
const REAL_WAIT: Duration = Duration::from_secs(5);

/// A future that ends without an output if it waits while nobody moves the clock; see [`Clock::unless_it_stands`].
pub struct UnlessItStands<'a, F> {
    future: Pin<Box<F>>,
    stands: BoxFuture<'a, ()>,
}

impl Clock {
    /// Gives the future's output, or an error if nobody has moved the clock for a while of real time.
    #[doc(hidden)]
    pub fn unless_it_stands<F: Future>(&self, future: F) -> UnlessItStands<'_, F> {
        UnlessItStands { future: Box::pin(future), stands: Box::pin(self.stands_still()) }
    }

    /// Ends when nobody has moved this clock for a while.
    async fn stands_still(&self) {
        let real = Self::system();
        loop {
            let before = self.now();
            real.sleep_until(real.now().after(REAL_WAIT)).await;
            if self.now() == before {
                return;
            }
        }
    }
}

impl<F: Future> Future for UnlessItStands<'_, F> {
    type Output = Result<F::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        self.stands.as_mut().poll(cx).map(|()| Err(no_progress_error()))
    }
}

fn no_progress_error() -> Error {
    Error::new(
        ErrorKind::WouldDeadlock,
        format!(
            "this call waits, and nobody has moved the test kit's clock for {REAL_WAIT:?} of real time: call `kit.clock().advance(…)` \
             in another task, run the test with `start_paused`, where the clock follows tokio's, or use `TestKit::in_real_time()`"
        ),
    )
}
