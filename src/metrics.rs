//! Counts, times and states of all locks, for Prometheus, OTLP, StatsD or any other exporter of the [`metrics`] crate.
//!
//! | name | kind | of |
//! | --- | --- | --- |
//! | `dlock_acquisitions_total` | counter | calls that have ended, by `outcome` |
//! | `dlock_acquisition_seconds` | histogram | the time from the call to the grant |
//! | `dlock_handovers_total` | counter | grants that the caller did not ask for itself, by `way`: `cohort` (a caller of this process passed its hold on), `release` (the release of a caller of this process asked for it), `queue` (the store granted it to the first of its wait queue) |
//! | `dlock_waiting` | gauge | calls that have not ended, also those that wait for a neighbour of this process |
//! | `dlock_held` | gauge | locks that this process holds |
//! | `dlock_hold_seconds` | histogram | the time from the grant to the release or the loss |
//! | `dlock_losses_total` | counter | locks that were lost while they were held, by `cause` |
//! | `dlock_renewals_total` | counter | renewals, by `outcome`: `renewed` or `failed`; one that the store refuses is in `dlock_losses_total` |
//! | `dlock_renewals_near_max_hold_total` | counter | renewals of holds that have had more than four fifths of their `max_hold` |
//! | `dlock_renewal_lease_left_ratio` | histogram | the share of the ttl that was left when a renewal was confirmed |
//! | `dlock_failed_releases_total` | counter | releases that failed; the ttl frees the lock if no retry succeeds |
//! | `dlock_unsettled_total` | counter | bodies whose work the store did not make final, or may not have made final |
//! | `dlock_deadlocks_total` | counter | waits that were refused because they could not end, by `kind`: `would_deadlock`, `conflict` (found by the store); and `lock_order`, a pair of locks that is taken in two orders (debug builds) |
//! | `dlock_wait_limit_seconds` | gauge | the `wait` of the last call that had one |
//! | `dlock_max_hold_seconds` | gauge | the `max_hold` of the last call |
//! | `dlock_once_per_seconds` | gauge | the period of a lock with `once_per` |
//! | `dlock_once_per_asked_timestamp_seconds` | gauge | the Unix time at which this process first called such a lock |
//! | `dlock_last_success_timestamp_seconds` | gauge | the Unix time of the last run in this process that has succeeded, of a lock with `once_per` or `record` |
//!
//! Of an election (by the label `election`, its name; its acquisitions and holds are counted as those of every lock). Elections whose
//! names have values, as `shard:<7>`, have none of these: they share one name, and each has a leader of its own.
//!
//! | name | kind | of |
//! | --- | --- | --- |
//! | `dlock_leader` | gauge | 1 while this process leads, else 0 |
//! | `dlock_leader_term` | gauge | the term (the fencing token) while this process leads, else 0 |
//! | `dlock_leader_changes_total` | counter | terms that have begun in this process |
//!
//! Of a store:
//!
//! | name | kind | of |
//! | --- | --- | --- |
//! | `dlock_store_requests_total` | counter | requests to the store, by `operation` and `outcome` |
//! | `dlock_store_request_seconds` | histogram | the time from a request to its answer, by `operation` |
//! | `dlock_store_up` | gauge | 1 if the store has answered the last request, 0 if it did not |
//! | `dlock_store_guarded` | gauge | 1 while a guard keeps grants back, as after a restart of Redis with `restart_guard` |
//! | `dlock_breaks_total` | counter | holds that this process has broken, at the wish of an operator |
//!
//! Of the process, without labels:
//!
//! | name | kind | of |
//! | --- | --- | --- |
//! | `dlock_fenced_writes_refused_total` | counter | writes with an old fencing token that `dlock::fenced` has refused |
//! | `dlock_dropped_events_total` | counter | events that are missing from the other metrics, because an observer was too slow |
//!
//! Times are in seconds. A histogram needs buckets: many exporters send quantiles otherwise, which no query can add up over
//! processes, and which cost each record ten times as much. [`SECONDS`] and [`SHARES`] are a set.
//!
//! The outcome of an acquisition is `acquired`, `busy`, `already_run`, `timed_out`, `given_up` (the caller dropped the call),
//! or the kind of its error, such as `outage`. That of a request is `answered`, `guarded`, `given_up`, or the kind of its
//! error; the operations are those of [`Operation`](crate::Operation). One request may cost several round trips, or share
//! one with others.
//!
//! Labels: `lock` (the name of the lock, never a key), `backend` (the name under which the store is installed), `store` (its
//! kind, such as `redis`; empty if it could not be opened) and `mode`. After 1000 names of locks, all further ones are
//! `other`; the same holds for the names of elections and of backends.
//!
//! The counters are exact: each call, each hold and each request is counted once, by its end. A process that is killed takes
//! the counts since the exporter's last answer with it. Events of dlock's own thread come through a queue of 4096; what does
//! not fit is counted in `dlock_dropped_events_total`. After that a gauge of what is held or led may stay wrong, because an end
//! may be missing.
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

mod chain;
mod elections;
mod names;
mod of_lock;
mod of_store;

use std::fmt;

use dlock_runtime::{Event, Label, Observer, StoreEvent, StoreLabel};
use metrics::Unit;

use self::chain::Chain;
use self::elections::Elections;
use self::names::Names;
use self::of_lock::OfLock;
use self::of_store::OfStore;

/// An observer that counts. Install one in each registry, with [`observe`](crate::observe); a second one counts everything twice.
///
/// It may be installed while locks are held, but then the gauges lack those.
pub struct Metrics {
    /// By the lock's name.
    locks: Box<[Chain<OfLock>; CHAIN_COUNT]>,
    names: Names,
    stores: Chain<OfStore>,
    backends: Names,
    elections: Elections,
}

/// Buckets for the times. The alerts of `ops/prometheus-rules.yml` ask whether a time is above 0.8 of its limit, so the set has 0.8
/// of the usual limits: 8 of 10 s, 24 of 30 s, 48 of 60 s, 2880 of 3600 s. For a limit of your own add its 0.8.
///
/// ```
/// // As `PrometheusBuilder::set_buckets` of `metrics-exporter-prometheus` takes them.
/// let buckets: &[f64] = &dlock::metrics::SECONDS;
/// assert!(buckets.is_sorted());
/// ```
pub const SECONDS: [f64; 28] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 8.0, 10.0, 20.0, 24.0, 30.0, 48.0,
    60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 2400.0, 2880.0, 3600.0,
];

/// Buckets for shares, as `dlock_renewal_lease_left_ratio` is one.
pub const SHARES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

const CHAIN_COUNT: usize = 256;

impl Metrics {
    /// Describes the metrics to the exporter that is installed.
    #[must_use]
    pub fn new() -> Self {
        describe();
        // From zero, so that the first increase is seen as one.
        metrics::counter!("dlock_dropped_events_total").increment(0);
        metrics::counter!("dlock_fenced_writes_refused_total").increment(0);
        // Of the process, not of a registry: a second observer does not count it twice.
        dlock_contract::engine::listen_to_refused_writes(|| {
            metrics::counter!("dlock_fenced_writes_refused_total").increment(1);
        });
        let locks = Box::new([const { Chain::new() }; CHAIN_COUNT]);
        let (names, backends, elections) = (Names::default(), Names::default(), Elections::default());
        Self { locks, names, stores: Chain::new(), backends, elections }
    }

    #[inline]
    fn of_lock(&self, label: &Label) -> &OfLock {
        let name = label.name();
        let found = self.chain(name).find(|lock| lock.is_of(name, label.store_label(), label.mode()));
        found.unwrap_or_else(|| self.add(label))
    }

    /// By both ends of the name and its length: a hash of all of it would cost as much as the counts.
    #[inline]
    fn chain(&self, name: &str) -> &Chain<OfLock> {
        let bytes = name.as_bytes();
        let ends = match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => u64::from_le_bytes(*first).rotate_left(29) ^ u64::from_le_bytes(*last),
            _ => bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let hash = (ends ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.locks[(hash >> 32) as usize % CHAIN_COUNT]
    }

    #[cold]
    fn add(&self, label: &Label) -> &OfLock {
        let (name, store, mode) = (self.names.bounded(label.name()), self.bounded(label.store_label()), label.mode());
        self.chain(name).find_or_add(|lock| lock.is_of(name, &store, mode), || OfLock::new(name, &store, mode))
    }

    #[cold]
    fn add_store(&self, store: &StoreLabel) -> &OfStore {
        let store = self.bounded(store);
        self.stores.find_or_add(|of| of.label == store, || OfStore::new(&store))
    }

    fn bounded(&self, store: &StoreLabel) -> StoreLabel {
        store.renamed(self.backends.bounded(store.backend()))
    }
}

fn describe() {
    let (count, seconds) = (Unit::Count, Unit::Seconds);
    metrics::describe_counter!("dlock_acquisitions_total", count, "Calls for a lock that have ended, by outcome.");
    metrics::describe_histogram!("dlock_acquisition_seconds", seconds, "Time from a call to its grant.");
    metrics::describe_counter!(
        "dlock_handovers_total",
        count,
        "Grants that the caller did not ask for itself, by way."
    );
    metrics::describe_gauge!("dlock_waiting", count, "Calls for a lock that have not ended.");
    metrics::describe_gauge!("dlock_held", count, "Locks that this process holds.");
    metrics::describe_histogram!("dlock_hold_seconds", seconds, "Time from a grant to the end of the hold.");
    metrics::describe_counter!("dlock_losses_total", count, "Locks that were lost while they were held, by cause.");
    metrics::describe_counter!("dlock_renewals_total", count, "Renewals, by outcome.");
    let near = "Renewals of holds that have had more than four fifths of their max_hold.";
    metrics::describe_counter!("dlock_renewals_near_max_hold_total", count, near);
    let share = "Share of the ttl that was left when a renewal was confirmed.";
    metrics::describe_histogram!("dlock_renewal_lease_left_ratio", share);
    metrics::describe_counter!("dlock_failed_releases_total", count, "Releases that failed.");
    metrics::describe_counter!("dlock_unsettled_total", count, "Bodies whose work was not made final.");
    metrics::describe_counter!("dlock_deadlocks_total", count, "Waits that were refused because they could not end.");
    metrics::describe_gauge!("dlock_wait_limit_seconds", seconds, "Longest wait of the last call that had a limit.");
    metrics::describe_gauge!("dlock_max_hold_seconds", seconds, "Longest hold that the last call allows.");
    metrics::describe_gauge!("dlock_once_per_seconds", seconds, "Period of a task that runs once in each.");
    let asked = "Unix time at which this process first called the task.";
    metrics::describe_gauge!("dlock_once_per_asked_timestamp_seconds", seconds, asked);
    let success = "Unix time of the task's last success in this process.";
    metrics::describe_gauge!("dlock_last_success_timestamp_seconds", seconds, success);
    metrics::describe_gauge!("dlock_leader", count, "Whether this process leads the election.");
    metrics::describe_gauge!("dlock_leader_term", count, "Term of the election while this process leads, else 0.");
    metrics::describe_counter!("dlock_leader_changes_total", count, "Terms that have begun in this process.");
    metrics::describe_counter!("dlock_store_requests_total", count, "Requests to a store, by operation and outcome.");
    metrics::describe_histogram!("dlock_store_request_seconds", seconds, "Time from a request to its answer.");
    metrics::describe_gauge!("dlock_store_up", count, "Whether the store has answered the last request.");
    metrics::describe_gauge!("dlock_store_guarded", count, "Whether a guard keeps grants back.");
    metrics::describe_counter!("dlock_breaks_total", count, "Holds that this process has broken for an operator.");
    metrics::describe_counter!("dlock_fenced_writes_refused_total", count, "Writes with an old fencing token.");
    metrics::describe_counter!("dlock_dropped_events_total", count, "Events that the other metrics lack.");
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
        self.of_lock(label).count(event);
        if label.is_election() {
            self.elections.count(label, self.backends.bounded(label.backend()), event);
        }
    }

    fn on_store_event(&self, store: &StoreLabel, event: &StoreEvent) {
        let found = self.stores.find(|of| of.label == *store);
        found.unwrap_or_else(|| self.add_store(store)).count(event);
    }

    fn on_dropped(&self, events: u64) {
        metrics::counter!("dlock_dropped_events_total").increment(events);
    }
}
