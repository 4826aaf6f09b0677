//! The suspend-proof clock, and sleeping on it.
//!
//! A lease in a store goes on running while this machine is suspended, so the instant at which the engine stops
//! trusting a hold must come too. `std::time::Instant` stands still in suspend on Linux (rust-lang/rust#87906); this
//! clock is `CLOCK_BOOTTIME`. A paused virtual machine is in no guest clock: only the fencing token helps there.

pub(crate) mod alarm;
#[cfg(feature = "testing")]
pub(crate) mod kit;
#[cfg(feature = "testing")]
pub(crate) mod paused;
pub(crate) mod sleepers;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_contract::BootInstant;

#[cfg(feature = "testing")]
use crate::clock::paused::Paused;
use crate::clock::sleepers::Sleepers;

/// A clock that counts suspend. Cloning gives another handle to the same clock.
///
/// ```
/// use std::time::Duration;
///
/// let clock = dlock_store::Clock::system();
/// let deadline = clock.now().after(Duration::from_millis(5));
/// let request = std::future::pending::<()>();
/// assert_eq!(futures::executor::block_on(clock.timeout_at(deadline, request)), None);
/// ```
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
        let now = Mutex::new(BootInstant::from_nanos(3_600_000_000_000));
        let wall_ms = Self::system().wall_ms().saturating_sub(3_600_000);
        let source = Source::Manual {
            now,
            wall_ms,
            #[cfg(feature = "testing")]
            kit: None,
        };
        Self::of(source, 0)
    }

    /// A clock for the test kit, and whether tokio's clock, which is paused, moves it.
    #[cfg(feature = "testing")]
    pub(crate) fn manual_of_kit() -> (Self, bool) {
        let mut clock = Self::manual();
        let paused = Paused::here();
        let follows = paused.is_some();
        if let Some(ClockInner { source: Source::Manual { kit, .. }, .. }) = Arc::get_mut(&mut clock.0) {
            *kit = Some(paused);
        }
        (clock, follows)
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
            Source::Manual { wall_ms, .. } => wall_ms.saturating_add(self.now().as_nanos() / 1_000_000),
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

    pub(crate) fn is_system(&self) -> bool {
        matches!(self.0.source, Source::System)
    }

    pub(crate) fn sleepers(&self) -> &Arc<Sleepers> {
        &self.0.sleepers
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_now() -> BootInstant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    BootInstant::from_nanos((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
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
    BootInstant::from_nanos(LATEST.fetch_max(nanos, Ordering::Relaxed).max(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

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
