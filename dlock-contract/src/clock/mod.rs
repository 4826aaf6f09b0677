//! The suspend-proof clock, and sleeping on it.
//!
//! A lease in a store goes on running while this machine is suspended, so the instant at which the engine stops
//! trusting a hold must come too. `std::time::Instant` stands still in suspend on Linux (rust-lang/rust#87906); this
//! clock is `CLOCK_BOOTTIME`. A paused virtual machine is in no guest clock: only the fencing token helps there.

pub(crate) mod alarm;
pub(crate) mod instant;
#[cfg(feature = "testing")]
pub(crate) mod kit;
#[cfg(feature = "testing")]
pub(crate) mod paused;
pub(crate) mod sleepers;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::instant::BootInstant;
#[cfg(feature = "testing")]
use crate::clock::paused::Paused;
use crate::clock::sleepers::Sleepers;
use crate::thread::foreign;
use crate::thread::own_thread;

/// A clock that counts suspend. Cloning gives another handle to the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Arc<ClockInner>);

#[derive(Debug)]
struct ClockInner {
    source: Source,
    /// Added to the wall clock: lets the conformance suite prove that no backend trusts it.
    wall_skew_ms: i64,
    sleepers: Arc<Sleepers>,
}

#[derive(Debug)]
enum Source {
    System,
    /// Stands still until a test advances it.
    Manual {
        now: Mutex<BootInstant>,
        /// The wall clock's reading at its start; it goes on with `now`.
        wall_ms: u64,
        /// Present in the test kit's clock. The inner value: tokio's paused clock, if that moves this one too.
        #[cfg(feature = "testing")]
        kit: Option<Option<Paused>>,
    },
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        static SYSTEM: std::sync::LazyLock<Clock> = std::sync::LazyLock::new(|| Clock::of(Source::System, 0));
        SYSTEM.clone()
    }

    /// A clock that stands still until [`advance`](Self::advance) is called; for tests.
    #[must_use]
    pub fn manual() -> Self {
        // Not zero, so that a test may look a little into the past.
        let now = Mutex::new(BootInstant(3_600_000_000_000));
        let wall_ms = Self::system().wall_ms().saturating_sub(3_600_000);
        let source = Source::Manual {
            now,
            wall_ms,
            #[cfg(feature = "testing")]
            kit: None,
        };
        Self::of(source, 0)
    }

    /// The test kit's: it follows tokio's clock where that is paused.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn of_kit() -> Self {
        let mut clock = Self::manual();
        let paused = Paused::here();
        let follows = paused.is_some();
        if let Some(ClockInner { source: Source::Manual { kit, .. }, .. }) = Arc::get_mut(&mut clock.0) {
            *kit = Some(paused);
        }
        if follows {
            own_thread::follow(&clock);
        }
        clock
    }

    /// Whether it is the test kit's clock.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_of_kit(&self) -> bool {
        matches!(self.0.source, Source::Manual { kit: Some(_), .. })
    }

    /// The machine's clock, with a wall clock that is wrong by this many milliseconds; for tests.
    #[must_use]
    pub fn with_wall_skew(milliseconds: i64) -> Self {
        let mut clock = Self::of(Source::System, milliseconds);
        if let Some(inner) = Arc::get_mut(&mut clock.0) {
            // Only the system clock's sleepers are driven by our thread.
            inner.sleepers = Self::system().0.sleepers.clone();
        }
        clock
    }

    fn of(source: Source, wall_skew_ms: i64) -> Self {
        Self(Arc::new(ClockInner { source, wall_skew_ms, sleepers: Arc::default() }))
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> BootInstant {
        match &self.0.source {
            Source::System => system_now(),
            #[cfg(feature = "testing")]
            Source::Manual { now, kit: Some(Some(paused)), .. } => {
                let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
                *now = now.after(paused.passed());
                *now
            }
            Source::Manual { now, .. } => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Milliseconds of wall-clock time since 1970, for people to read. Nothing may be decided by it, except by a store
    /// that lives here and has no other.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        let wall = match &self.0.source {
            Source::System => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
            }
            Source::Manual { wall_ms, .. } => wall_ms.saturating_add(self.now().0 / 1_000_000),
        };
        wall.saturating_add_signed(self.0.wall_skew_ms)
    }

    /// Moves a manual clock forward and ends the sleeps that are then over. Does nothing to the machine's clock.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual { now, .. } = &self.0.source {
            let now = {
                let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
                *now = now.after(by);
                *now
            };
            self.0.sleepers.wake_due(now);
        }
    }

    /// Ends at `instant`, also after a suspend, on any executor.
    #[must_use]
    pub fn sleep_until(&self, instant: BootInstant) -> Sleep<'_> {
        Sleep { clock: self, until: instant, entry: None }
    }

    /// Gives `future`'s output, or `None` if `deadline` comes first; the future is dropped then.
    pub fn timeout_at<F: Future>(&self, deadline: BootInstant, future: F) -> TimeoutAt<'_, F> {
        TimeoutAt { future, sleep: self.sleep_until(deadline) }
    }

    /// Wakes all sleeps on this clock ahead of their time, because something has ended.
    #[doc(hidden)]
    pub fn wake_all(&self) {
        self.sleepers().wake_all();
    }

    /// When the next sleep on this clock ends; those that are over are ended.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    #[must_use]
    pub fn next_sleep(&self) -> Option<BootInstant> {
        self.0.sleepers.wake_due(self.now())
    }

    pub(crate) fn sleepers(&self) -> &Arc<Sleepers> {
        &self.0.sleepers
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_now() -> BootInstant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    BootInstant((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
}

/// Elsewhere: the larger of what the monotonic clock and the wall clock say has passed. A wall clock set forward ends
/// holds early, which is safe; one set back falls back on the monotonic clock.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system_now() -> BootInstant {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;
    static START: OnceLock<(Instant, SystemTime)> = OnceLock::new();
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let (instant, wall) = *START.get_or_init(|| (Instant::now(), SystemTime::now()));
    let passed = instant.elapsed().max(wall.elapsed().unwrap_or_default());
    let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
    BootInstant(LATEST.fetch_max(nanos, Ordering::Relaxed).max(nanos))
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
        if first && matches!(self.clock.0.source, Source::System) {
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
    use super::*;
    use futures::FutureExt;

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

    #[test]
    fn the_system_clock_goes_on() {
        let clock = Clock::system();
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now().since(before) >= Duration::from_millis(2));
    }

    #[test]
    fn an_instant_stays_between_the_first_and_the_last_one() {
        assert_eq!(BootInstant::from_nanos(5).before(Duration::from_secs(1)), BootInstant::from_nanos(0));
        assert_eq!(BootInstant::from_nanos(5).after(Duration::MAX), BootInstant::NEVER);
    }
}
