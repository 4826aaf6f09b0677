//! When a wait ends, when to ask the store again, and news from the store in between.

use std::future::poll_fn;
use std::time::Duration;

use dlock_contract::{Backoff, BootInstant, Origin, Result, RunsOn, Signal, Wake, WakeStyle};
use dlock_store::{Clock, background};

use crate::hold::jitter::full_jitter;
use crate::hold::store::{Store, request_bound};
use crate::options::Wait;
use crate::options::lock_options::Resolved;

/// When a wait that began at `since` ends.
pub(crate) fn wait_end(since: BootInstant, wait: Wait) -> BootInstant {
    match wait {
        Wait::None => since,
        Wait::UpTo(wait) => since.after(wait),
        Wait::Forever => BootInstant::NEVER,
    }
}

/// The least bound of an attempt, even if the wait is shorter: opening a connection takes time.
pub(super) const SHORTEST_ATTEMPT_BOUND: Duration = Duration::from_millis(250);

/// The bound of one attempt to get the lock, or to open its store. Without a wait it is that of a request.
pub(super) fn attempt_bound(options: &Resolved, wait_ends: BootInstant, now: BootInstant) -> Duration {
    let bound = request_bound(options.ttl);
    if options.wait == Wait::None { bound } else { bound.min(wait_ends.since(now).max(SHORTEST_ATTEMPT_BOUND)) }
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// The longest pause where the store sends news. News can be lost.
const LONGEST_NEWS_PAUSE: Duration = Duration::from_secs(5);

/// The pauses where news are promised but cannot come, for example while a push connection is down.
const FALLBACK_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The pace of requests where news do not come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) style: WakeStyle,
    /// The caller's `backoff`, instead of the store's own pace.
    pub(crate) backoff: Option<Backoff>,
}

/// The time of the next attempt if no news come.
pub(crate) fn ask_again_at(now: BootInstant, wake: &Wake, pace: Pace, contended: u32) -> BootInstant {
    let pause = match (pace.style, wake.signal.is_some()) {
        (_, true) => LONGEST_NEWS_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0),
        (_, false) if let Some(Backoff { from, to, .. }) = pace.backoff => full_jitter(contended, from, to),
        (WakeStyle::Poll { from, to }, false) => full_jitter(contended, from, to),
        // The notification did not come. A wake style that is newer than this engine is treated the same.
        (_, false) => full_jitter(contended, FALLBACK_PAUSES.0, FALLBACK_PAUSES.1),
    };
    // A little after the lease's end, because a request at the very end finds it alive half of the time. Spread over up
    // to 10 ms, but less where the store wants to be asked soon.
    let delay = |by: BootInstant| MILLISECOND + (by.since(now) / 4).min(10 * MILLISECOND).mul_f64(fastrand::f64());
    let known_instant = wake.ask_by.map(|by| by.after(delay(by)));
    let next = now.after(pause.max(MILLISECOND));
    known_instant.map_or(next, |known_instant| known_instant.min(next).max(now.after(MILLISECOND)))
}

/// Waits for the wake's news until `until`. `None`: no news came.
///
/// The signal is polled in place, so that it may be kept while the next attempt runs.
pub(crate) async fn news(store: &Store, clock: &Clock, wake: &mut Wake, until: BootInstant) -> Result<Option<Signal>> {
    let Some(signal) = wake.signal.as_mut() else {
        clock.sleep_until(until).await;
        return Ok(None);
    };
    let on_our_thread = store.backend.profile().runs_on == RunsOn::OwnThread || Origin::here().is_none();
    if !on_our_thread {
        return clock.timeout_at(until, poll_fn(|cx| signal.as_mut().poll(cx))).await.transpose();
    }
    // The connection and its driver live on our thread, so the signal must be polled there.
    let Some(signal) = wake.signal.take() else { return Ok(None) };
    let waiting_clock = clock.clone();
    let run = background()?.run(async move {
        let mut signal = signal;
        let news = waiting_clock.timeout_at(until, poll_fn(|cx| signal.as_mut().poll(cx))).await;
        (news, signal)
    });
    let (news, signal) = run.await?;
    if news.is_none() {
        wake.signal = Some(signal);
    }
    news.transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_end_of_the_lease_is_not_slept_through() {
        let now = BootInstant::from_nanos(1_000_000_000);
        let wake = Wake::poll().ask_by(now.after(Duration::from_millis(20)));
        let style = WakeStyle::Poll { from: Duration::from_secs(100), to: Duration::from_secs(100) };
        let pace = Pace { style, backoff: None };
        assert!((0..100).all(|_| ask_again_at(now, &wake, pace, 0) <= now.after(Duration::from_millis(31))));
    }

    #[test]
    fn a_waiter_asks_again_as_soon_as_the_store_wants() {
        let now = BootInstant::from_nanos(1_000_000_000);
        let wake = Wake::poll().ask_by(now.after(4 * MILLISECOND));
        let pace = Pace { style: WakeStyle::Grant, backoff: None };
        let at: Vec<_> = (0..100).map(|_| ask_again_at(now, &wake, pace, 9)).collect();
        assert!(at.iter().filter(|at| **at <= now.after(6 * MILLISECOND)).count() > 90, "{at:?}");
    }

    #[test]
    fn there_is_always_a_pause_between_two_polls() {
        let now = BootInstant::from_nanos(1_000_000_000);
        let wake = Wake::poll().ask_by(now.before(Duration::from_secs(1)));
        assert!(ask_again_at(now, &wake, Pace { style: WakeStyle::Grant, backoff: None }, 0) > now);
    }
}
