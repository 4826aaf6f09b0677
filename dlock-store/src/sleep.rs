//! Sleeping on the suspend-proof clock. Our thread ends the sleeps.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dlock_contract::BootInstant;

use crate::clock::Clock;
use crate::own_thread;
use crate::thread::foreign;

impl Clock {
    /// Ends at `instant`, also after a suspend, on any executor.
    #[must_use]
    pub fn sleep_until(&self, instant: BootInstant) -> Sleep<'_> {
        Sleep { clock: self, until: instant, entry: None }
    }

    /// Gives `future`'s output, or `None` if `deadline` comes first; the future is dropped then.
    pub fn timeout_at<F: Future>(&self, deadline: BootInstant, future: F) -> TimeoutAt<'_, F> {
        TimeoutAt { future, sleep: self.sleep_until(deadline) }
    }
}

pin_project_lite::pin_project! {
    /// A future with a deadline; made by [`Clock::timeout_at`]. By hand, since an `async fn` would keep the future twice.
    #[derive(Debug)]
    #[must_use = "a future does nothing until it is awaited"]
    pub struct TimeoutAt<'a, F> {
        #[pin]
        future: F,
        sleep: Sleep<'a>,
    }
}

impl<F: Future> Future for TimeoutAt<'_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        match this.future.poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Pin::new(this.sleep).poll(cx).map(|()| None),
        }
    }
}

/// A sleep on a [`Clock`]; made by [`Clock::sleep_until`]. Dropping it ends it.
#[derive(Debug)]
pub struct Sleep<'a> {
    clock: &'a Clock,
    until: BootInstant,
    entry: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.until == BootInstant::NEVER {
            return Poll::Pending;
        }
        let first = self.entry.is_none();
        let entry = foreign::poll_guarded(cx, |cx| self.clock.sleepers().set(self.until, self.entry, cx.waker()));
        self.entry = Some(entry);
        if first && self.clock.is_system() {
            // Our thread drives the sleeps; this may be the first thing that a process does with us. It looks at the
            // clock by itself, also for a sleep that is over already.
            own_thread::start();
            return Poll::Pending;
        }
        // Checked after the entry was made, so that an advance in between is not missed.
        if self.clock.now() >= self.until { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.clock.sleepers().clear(self.until, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_manual_clock_stands_still_until_it_is_advanced() {
        let clock = Clock::manual();
        let mut sleep = Box::pin(clock.sleep_until(clock.now().after(Duration::from_secs(5))));
        assert!(sleep.as_mut().now_or_never().is_none());
        let wall = clock.wall_ms();
        clock.advance(Duration::from_secs(4));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        assert!(sleep.as_mut().now_or_never().is_some());
        assert_eq!(clock.wall_ms(), wall + 5000);
    }

    #[test]
    fn a_dropped_sleep_leaves_no_entry() {
        let clock = Clock::manual();
        let mut sleep = Box::pin(clock.sleep_until(clock.now().after(Duration::from_secs(5))));
        assert!(sleep.as_mut().now_or_never().is_none());
        assert_eq!(clock.sleepers().len(), 1);
        drop(sleep);
        assert_eq!(clock.sleepers().len(), 0);
    }
}
