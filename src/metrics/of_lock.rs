//! The series of one lock in one store.

use std::mem::Discriminant;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock_contract::Mode;
use dlock_runtime::{Event, GrantWay, Label, StoreLabel};
use metrics::{Counter, Gauge, Histogram};

/// The handles of one lock in one store. A handle that is kept costs a fraction of one that is looked up.
pub(super) struct OfLock {
    pub(super) name: Box<str>,
    store: StoreLabel,
    mode: Discriminant<Mode>,
    labels: Vec<metrics::Label>,
    waiting: Gauge,
    held: Gauge,
    acquired: Counter,
    acquisition: Histogram,
    hold: Histogram,
    renewed: Counter,
    lease_left: Histogram,
    wait_limit: Limit,
    max_hold: Limit,
    once_per: Limit,
    oldest: OldestHold,
}

impl OfLock {
    pub(super) fn new(name: &str, label: &Label) -> Self {
        let labels = vec![
            metrics::Label::new("lock", name.to_owned()),
            metrics::Label::new("backend", label.backend().to_owned()),
            metrics::Label::from_static_parts("store", label.store()),
            metrics::Label::from_static_parts("mode", label.mode().as_str()),
        ];
        Self {
            name: name.into(),
            store: label.store_label().clone(),
            mode: std::mem::discriminant(&label.mode()),
            waiting: metrics::gauge!("dlock_waiting", labels.clone()),
            held: metrics::gauge!("dlock_held", labels.clone()),
            acquired: metrics::counter!("dlock_acquisitions_total", with(&labels, "outcome", "acquired")),
            acquisition: metrics::histogram!("dlock_acquisition_seconds", labels.clone()),
            hold: metrics::histogram!("dlock_hold_seconds", labels.clone()),
            renewed: metrics::counter!("dlock_renewals_total", with(&labels, "outcome", "renewed")),
            lease_left: metrics::histogram!("dlock_renewal_lease_left_ratio", labels.clone()),
            wait_limit: Limit::default(),
            max_hold: Limit::default(),
            once_per: Limit::default(),
            oldest: OldestHold::default(),
            labels,
        }
    }

    #[inline]
    pub(super) fn is_of(&self, name: &str, label: &Label) -> bool {
        self.mode == std::mem::discriminant(&label.mode()) && self.store == *label.store_label() && *self.name == *name
    }

    /// Rare events have a function of their own, because this one then needs fewer instructions.
    #[inline]
    pub(super) fn count(&self, event: &Event) {
        match event {
            Event::Asked { wait, max_hold, once_per } => {
                self.waiting.increment(1);
                self.wait_limit.set("dlock_wait_limit_seconds", self, *wait);
                self.max_hold.set("dlock_max_hold_seconds", self, *max_hold);
                if self.once_per.set("dlock_once_per_seconds", self, once_per.map(|once_per| once_per.period)) {
                    self.time_of_first_call();
                }
            }
            Event::Acquired { waited, way, .. } => {
                self.waiting.decrement(1);
                self.held.increment(1);
                self.oldest.note_begin();
                self.acquired.increment(1);
                self.acquisition.record(*waited);
                if *way != GrantWay::Request {
                    self.add_one("dlock_handovers_total", "way", way.as_str());
                }
            }
            Event::Released { held } => self.ended(*held),
            _ => self.count_rare(event),
        }
    }

    #[cold]
    fn count_rare(&self, event: &Event) {
        match event {
            Event::Busy { .. } => self.refused("busy"),
            Event::AlreadyRun { .. } => self.refused("already_run"),
            Event::TimedOut { .. } => self.refused("timed_out"),
            Event::GivenUp { .. } => self.refused("given_up"),
            Event::Failed { kind, .. } => self.refused(kind.as_str()),
            Event::Lost { cause, held, .. } => {
                self.ended(*held);
                self.add_one("dlock_losses_total", "cause", cause.as_str());
            }
            Event::NotSettled { kind, held } => {
                self.ended(*held);
                self.add_one("dlock_unsettled_total", "kind", kind.as_str());
            }
            Event::Renewed { remaining, ttl, held } => {
                self.oldest.note_renewal(self, *held, *ttl);
                self.renewed.increment(1);
                self.lease_left.record(remaining.div_duration_f64(*ttl));
            }
            Event::RenewalFailed { .. } => self.add_one("dlock_renewals_total", "outcome", "failed"),
            Event::ReleaseFailed { .. } => {
                metrics::counter!("dlock_failed_releases_total", self.labels.clone()).increment(1);
            }
            Event::Succeeded { at_ms } => {
                let at = Duration::from_millis(*at_ms).as_secs_f64();
                metrics::gauge!("dlock_last_success_timestamp_seconds", self.labels.clone()).set(at);
            }
            Event::Deadlock { kind } => self.add_one("dlock_deadlocks_total", "kind", kind.as_str()),
            Event::OrderCycle { .. } => self.add_one("dlock_deadlocks_total", "kind", "lock_order"),
            _ => {}
        }
    }

    /// The call has ended without the lock.
    fn refused(&self, outcome: &'static str) {
        self.waiting.decrement(1);
        self.add_one("dlock_acquisitions_total", "outcome", outcome);
    }

    #[inline]
    fn ended(&self, held: Duration) {
        self.held.decrement(1);
        self.hold.record(held);
        self.oldest.note_end(held);
    }

    pub(super) fn forget_oldest_hold(&self) {
        self.oldest.forget_known();
    }

    /// To a counter of something rare.
    #[cold]
    fn add_one(&self, name: &'static str, label: &'static str, value: &'static str) {
        metrics::counter!(name, with(&self.labels, label, value)).increment(1);
    }

    /// For the alert on a task that has never succeeded since its process began.
    #[cold]
    fn time_of_first_call(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        metrics::gauge!("dlock_once_per_asked_timestamp_seconds", self.labels.clone()).set(now.as_secs_f64());
    }
}

/// The value of an option, which is the same in most calls.
#[derive(Default)]
struct Limit {
    /// In nanoseconds; zero before the first.
    last: AtomicU64,
    /// A lock without the option has no such series.
    gauge: OnceLock<Gauge>,
}

impl Limit {
    /// True at the first value.
    #[inline]
    fn set(&self, name: &'static str, of: &OfLock, limit: Option<Duration>) -> bool {
        let Some(limit) = limit else { return false };
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.last.load(Ordering::Relaxed) != nanos && self.write(name, of, limit, nanos)
    }

    #[cold]
    fn write(&self, name: &'static str, of: &OfLock, limit: Duration, nanos: u64) -> bool {
        self.gauge.get_or_init(|| metrics::gauge!(name, of.labels.clone())).set(limit.as_secs_f64());
        self.last.swap(nanos, Ordering::Relaxed) == 0
    }
}

/// When the longest of the present holds began. A histogram knows a hold only when it has ended.
///
/// Renewals tell of holds. They come through the observers' queue, so one may come after the end of its hold. Then another hold takes
/// its place once the ttl is over.
#[derive(Default)]
struct OldestHold {
    /// The holds of this process.
    count: AtomicU32,
    /// Whether one is known. Nearly every hold ends before its first renewal.
    is_known: AtomicBool,
    known: Mutex<Option<Known>>,
    gauge: OnceLock<Gauge>,
}

/// Times in milliseconds since some moment, by a clock that is not set.
struct Known {
    began: i64,
    renewed: i64,
    ttl: i64,
}

/// Two times of one beginning differ by less: each is the present time minus the age of the hold.
const SAME_BEGINNING: i64 = 1000;

impl OldestHold {
    #[inline]
    fn note_begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    #[cold]
    fn note_renewal(&self, of: &OfLock, held: Duration, ttl: Duration) {
        let (now, began) = begun(held);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *known {
            Some(oldest) if oldest.lives(now) && began > oldest.began + SAME_BEGINNING => return,
            Some(oldest) if oldest.lives(now) && began >= oldest.began - SAME_BEGINNING => oldest.renewed = now,
            _ => {
                *known = Some(Known { began, renewed: now, ttl: millis(ttl) });
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(held);
                let gauge = || metrics::gauge!("dlock_oldest_hold_timestamp_seconds", of.labels.clone());
                self.gauge.get_or_init(gauge).set(since.as_secs_f64());
            }
        }
        // The last hold may have ended since it was renewed. Its end looks here after it has changed the count.
        self.is_known.store(true, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            self.clear(&mut known);
        }
    }

    /// The next renewal tells it again.
    fn forget_known(&self) {
        self.clear(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn clear(&self, known: &mut Option<Known>) {
        *known = None;
        self.is_known.store(false, Ordering::SeqCst);
        if let Some(gauge) = self.gauge.get() {
            gauge.set(0.0);
        }
    }

    /// If this was the oldest one, the next renewal of another one counts. It is a third of a ttl away at most.
    #[inline]
    fn note_end(&self, held: Duration) {
        // A hold that began before this observer was there was not counted.
        let counted = |count: u32| count.checked_sub(1);
        let before = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted);
        let others = before.is_ok_and(|before| before > 1);
        if self.is_known.load(Ordering::SeqCst) {
            self.forget(held, others);
        }
    }

    #[cold]
    fn forget(&self, held: Duration, others: bool) {
        let (now, began) = begun(held);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |oldest: &Known| oldest.lives(now) && began > oldest.began + SAME_BEGINNING;
        if !others || !known.as_ref().is_some_and(is_other) {
            self.clear(&mut known);
        }
    }
}

impl Known {
    /// A hold that lives is renewed within its ttl.
    const fn lives(&self, now: i64) -> bool {
        now - self.renewed <= self.ttl
    }
}

/// Now, and when a hold of this age began.
fn begun(held: Duration) -> (i64, i64) {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = millis(START.elapsed());
    (now, now - millis(held))
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn with(labels: &[metrics::Label], name: &'static str, value: &'static str) -> Vec<metrics::Label> {
    let mut labels = labels.to_vec();
    labels.push(metrics::Label::from_static_parts(name, value));
    labels
}
