//! The series of one lock in one store.

use std::mem::Discriminant;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlock_contract::Mode;
use dlock_runtime::{Event, GrantWay, StoreLabel};
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
}

impl OfLock {
    pub(super) fn new(name: &str, store: &StoreLabel, mode: Mode) -> Self {
        let labels = vec![
            metrics::Label::new("lock", name.to_owned()),
            metrics::Label::new("backend", store.backend().to_owned()),
            metrics::Label::from_static_parts("store", store.store()),
            metrics::Label::from_static_parts("mode", mode.as_str()),
        ];
        Self {
            name: name.into(),
            store: store.clone(),
            mode: std::mem::discriminant(&mode),
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
            labels,
        }
    }

    #[inline]
    pub(super) fn is_of(&self, name: &str, store: &StoreLabel, mode: Mode) -> bool {
        self.mode == std::mem::discriminant(&mode) && self.store == *store && *self.name == *name
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
                // The histogram of holds knows a hold only when it has ended.
                if self.max_hold.is_near(*held) {
                    metrics::counter!("dlock_renewals_near_max_hold_total", self.labels.clone()).increment(1);
                }
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

    /// Whether this is more than four fifths of the limit.
    fn is_near(&self, length: Duration) -> bool {
        let limit = u128::from(self.last.load(Ordering::Relaxed));
        limit > 0 && length.as_nanos() * 5 > limit * 4
    }

    #[cold]
    fn write(&self, name: &'static str, of: &OfLock, limit: Duration, nanos: u64) -> bool {
        self.gauge.get_or_init(|| metrics::gauge!(name, of.labels.clone())).set(limit.as_secs_f64());
        self.last.swap(nanos, Ordering::Relaxed) == 0
    }
}

fn with(labels: &[metrics::Label], name: &'static str, value: &'static str) -> Vec<metrics::Label> {
    let mut labels = labels.to_vec();
    labels.push(metrics::Label::from_static_parts(name, value));
    labels
}
