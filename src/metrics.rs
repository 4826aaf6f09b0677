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

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

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
pub struct Metrics(RwLock<HashMap<Box<str>, Vec<Arc<Series>>>>);

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
        Self(RwLock::default())
    }

    fn series(&self, label: &Label) -> Arc<Series> {
        let found = |all: &HashMap<Box<str>, Vec<Arc<Series>>>| {
            let of_name = all.get(label.name()).or_else(|| all.get(OTHER).filter(|_| all.len() >= MOST_NAMES))?;
            of_name.iter().find(|series| series.is_of(label)).cloned()
        };
        if let Some(series) = found(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return series;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = found(&all) {
            return series;
        }
        let is_known = all.contains_key(label.name()) || all.len() < MOST_NAMES;
        let name = if is_known { label.name() } else { OTHER };
        let series = Arc::new(Series::new(name, label));
        all.entry(name.into()).or_default().push(series.clone());
        series
    }
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
    backend: Box<str>,
    store: &'static str,
    mode: &'static str,
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
            backend: label.backend().into(),
            store: label.store(),
            mode: label.mode().as_str(),
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

    fn is_of(&self, label: &Label) -> bool {
        *self.backend == *label.backend() && self.store == label.store() && self.mode == label.mode().as_str()
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
