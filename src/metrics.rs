//! Counts, times and states of all locks, for Prometheus, OTLP, StatsD or any other exporter of the [`metrics`] crate.
//!
//! | name | kind | of |
//! | --- | --- | --- |
//! | `dlock_acquisitions_total` | counter | calls that have ended, by `outcome` |
//! | `dlock_acquisition_seconds` | histogram | the time from the call to the grant |
//! | `dlock_waiting` | gauge | calls that have not ended, also those that wait for a neighbour of this process |
//! | `dlock_held` | gauge | locks that this process holds |
//! | `dlock_hold_seconds` | histogram | the time from the grant to the release or the loss |
//! | `dlock_losses_total` | counter | locks that were lost while they were held, by `cause` |
//! | `dlock_renewals_total` | counter | renewals, by `outcome`: `renewed` or `failed` |
//! | `dlock_renewal_lease_left_ratio` | histogram | the share of the ttl that was left when a renewal was confirmed |
//! | `dlock_failed_releases_total` | counter | releases that failed; the ttl frees the lock if no retry succeeds |
//! | `dlock_unsettled_total` | counter | bodies whose work the store did not make final, or may not have made final |
//!
//! Times are in seconds. The outcome of an acquisition is `acquired`, `busy`, `already_run`, `timed_out`, `given_up` (the caller
//! dropped the call), or the kind of its error, such as `outage`.
//!
//! Labels: `lock` (the name of the lock, never a key), `backend` (the name under which the store is installed), `store` (its
//! kind, such as `redis`; empty if it could not be opened) and `mode`. After 1000 names of locks, all further ones are `other`.
//!
//! Install the exporter first: what the `metrics` crate gives out before that counts nothing.
//!
//! ```
//! # async fn main_of_service() -> dlock::Result<()> {
//! // Here: `metrics_exporter_prometheus::PrometheusBuilder::new().install()`, or another exporter.
//! dlock::observe(dlock::metrics::Metrics::new());
//! dlock::connect("redis", "redis://127.0.0.1/").await?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::mem::Discriminant;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dlock_contract::Mode;
use dlock_runtime::{Event, Label, Observer};
use metrics::{Counter, Gauge, Histogram, Unit};

/// The most names of locks that have series of their own. Names that are made at run time must not fill the memory of the
/// exporter.
const MOST_NAMES: usize = 1000;

/// The name of all further ones.
const OTHER: &str = "other";

/// An observer that counts. Install one in each registry, with [`observe`](crate::observe); a second one counts everything twice.
///
/// It may be installed while locks are held, but then the gauges lack those.
pub struct Metrics {
    /// By a hash of the lock's name. Series are only added, so an event finds its own without a lock.
    series: Box<[Chain; CHAINS]>,
    /// The number of names, for the one that adds.
    names: Mutex<usize>,
}

const CHAINS: usize = 256;

/// All series of some names.
type Chain = OnceLock<Box<Node>>;

struct Node {
    series: Series,
    next: Chain,
}

impl Metrics {
    /// Describes the metrics to the exporter that is installed.
    #[must_use]
    pub fn new() -> Self {
        let count = Unit::Count;
        metrics::describe_counter!("dlock_acquisitions_total", count, "Calls for a lock that have ended, by outcome.");
        metrics::describe_histogram!("dlock_acquisition_seconds", Unit::Seconds, "Time from a call to its grant.");
        metrics::describe_gauge!("dlock_waiting", count, "Calls for a lock that have not ended.");
        metrics::describe_gauge!("dlock_held", count, "Locks that this process holds.");
        metrics::describe_histogram!("dlock_hold_seconds", Unit::Seconds, "Time from a grant to the end of the hold.");
        metrics::describe_counter!("dlock_losses_total", count, "Locks that were lost while they were held, by cause.");
        metrics::describe_counter!("dlock_renewals_total", count, "Renewals, by outcome.");
        let share = "Share of the ttl that was left when a renewal was confirmed.";
        metrics::describe_histogram!("dlock_renewal_lease_left_ratio", share);
        metrics::describe_counter!("dlock_failed_releases_total", count, "Releases that failed.");
        metrics::describe_counter!("dlock_unsettled_total", count, "Bodies whose work was not made final.");
        Self { series: Box::new([const { OnceLock::new() }; CHAINS]), names: Mutex::default() }
    }

    fn series(&self, label: &Label) -> &Series {
        match find(self.chain(label.name()), |series| series.is_of(label.name(), label)) {
            Ok(series) => series,
            Err(_) => self.add(label),
        }
    }

    fn chain(&self, name: &str) -> &Chain {
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let (words, rest) = name.as_bytes().as_chunks();
        let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
        &self.series[(hash >> 32) as usize % CHAINS]
    }

    #[cold]
    fn add(&self, label: &Label) -> &Series {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = find(self.chain(label.name()), |series| *series.name == *label.name()).is_ok();
        let name = if is_known || *names < MOST_NAMES { label.name() } else { OTHER };
        let mut chain = self.chain(name);
        if find(chain, |series| *series.name == *name).is_err() {
            *names += 1;
        }
        loop {
            match find(chain, |series| series.is_of(name, label)) {
                Ok(series) => return series,
                Err(end) => {
                    end.get_or_init(|| Box::new(Node { series: Series::new(name, label), next: OnceLock::new() }));
                    chain = end;
                }
            }
        }
    }
}

/// The series that fits, or the end of its chain.
fn find(mut chain: &Chain, fits: impl Fn(&Series) -> bool) -> Result<&Series, &Chain> {
    while let Some(node) = chain.get() {
        if fits(&node.series) {
            return Ok(&node.series);
        }
        chain = &node.next;
    }
    Err(chain)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Observer for Metrics {
    fn on_event(&self, label: &Label, event: &Event) {
        let series = self.series(label);
        match event {
            Event::Asked => series.waiting.increment(1),
            Event::Acquired { waited, .. } => {
                series.waiting.decrement(1);
                series.held.increment(1);
                series.acquired.increment(1);
                series.acquisition.record(*waited);
            }
            Event::Busy => series.refused("busy"),
            Event::AlreadyRun => series.refused("already_run"),
            Event::TimedOut { .. } => series.refused("timed_out"),
            Event::GivenUp { .. } => series.refused("given_up"),
            Event::Failed { kind, .. } => series.refused(kind.as_str()),
            Event::Released { held } => series.ended(*held),
            Event::Lost { cause, held } => {
                series.ended(*held);
                series.counter("dlock_losses_total", "cause", cause.as_str()).increment(1);
            }
            Event::NotSettled { kind, held } => {
                series.ended(*held);
                series.counter("dlock_unsettled_total", "kind", kind.as_str()).increment(1);
            }
            Event::Renewed { remaining, ttl } => {
                series.renewed.increment(1);
                series.lease_left.record(remaining.div_duration_f64(*ttl));
            }
            Event::RenewalFailed { .. } => series.counter("dlock_renewals_total", "outcome", "failed").increment(1),
            Event::ReleaseFailed { .. } => series.failed_releases.increment(1),
            _ => {}
        }
    }
}

/// The handles of one lock in one store. A handle that is kept costs a fraction of one that is looked up.
struct Series {
    name: Box<str>,
    backend: Box<str>,
    store: &'static str,
    mode: Discriminant<Mode>,
    labels: Vec<metrics::Label>,
    waiting: Gauge,
    held: Gauge,
    acquired: Counter,
    acquisition: Histogram,
    hold: Histogram,
    renewed: Counter,
    lease_left: Histogram,
    failed_releases: Counter,
}

impl Series {
    fn new(name: &str, label: &Label) -> Self {
        let labels = vec![
            metrics::Label::new("lock", name.to_owned()),
            metrics::Label::new("backend", label.backend().to_owned()),
            metrics::Label::from_static_parts("store", label.store()),
            metrics::Label::from_static_parts("mode", label.mode().as_str()),
        ];
        Self {
            name: name.into(),
            backend: label.backend().into(),
            store: label.store(),
            mode: std::mem::discriminant(&label.mode()),
            waiting: metrics::gauge!("dlock_waiting", labels.clone()),
            held: metrics::gauge!("dlock_held", labels.clone()),
            acquired: metrics::counter!("dlock_acquisitions_total", with(&labels, "outcome", "acquired")),
            acquisition: metrics::histogram!("dlock_acquisition_seconds", labels.clone()),
            hold: metrics::histogram!("dlock_hold_seconds", labels.clone()),
            renewed: metrics::counter!("dlock_renewals_total", with(&labels, "outcome", "renewed")),
            lease_left: metrics::histogram!("dlock_renewal_lease_left_ratio", labels.clone()),
            failed_releases: metrics::counter!("dlock_failed_releases_total", labels.clone()),
            labels,
        }
    }

    fn is_of(&self, name: &str, label: &Label) -> bool {
        // By its address: two texts of one kind would only make two handles of the same series.
        self.mode == std::mem::discriminant(&label.mode())
            && std::ptr::eq(self.store, label.store())
            && *self.name == *name
            && *self.backend == *label.backend()
    }

    /// The call has ended without the lock.
    fn refused(&self, outcome: &'static str) {
        self.waiting.decrement(1);
        self.counter("dlock_acquisitions_total", "outcome", outcome).increment(1);
    }

    fn ended(&self, held: Duration) {
        self.held.decrement(1);
        self.hold.record(held);
    }

    /// A counter of something rare.
    fn counter(&self, name: &'static str, label: &'static str, value: &'static str) -> Counter {
        metrics::counter!(name, with(&self.labels, label, value))
    }
}

fn with(labels: &[metrics::Label], name: &'static str, value: &'static str) -> Vec<metrics::Label> {
    let mut labels = labels.to_vec();
    labels.push(metrics::Label::from_static_parts(name, value));
    labels
}
