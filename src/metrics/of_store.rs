//! The series of one store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use dlock_contract::ErrorKind;
use dlock_runtime::{Operation, RequestOutcome, StoreEvent, StoreLabel};
use metrics::{Counter, Histogram};

use super::chain::Chain;

/// The handles of one store.
pub(super) struct OfStore {
    pub(super) label: StoreLabel,
    labels: [metrics::Label; 2],
    /// By operation.
    requests: Chain<(Operation, Requests)>,
    up: Flag,
    guarded: Flag,
}

/// The requests of one operation.
struct Requests {
    answered: OnceLock<Counter>,
    time: Histogram,
}

impl OfStore {
    pub(super) fn new(label: &StoreLabel) -> Self {
        let labels = [
            metrics::Label::new("backend", label.backend().to_owned()),
            metrics::Label::from_static_parts("store", label.store()),
        ];
        let [up, guarded] = [Flag::new("dlock_store_up"), Flag::new("dlock_store_guarded")];
        Self { label: label.clone(), labels, requests: Chain::new(), up, guarded }
    }

    pub(super) fn count(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Requested { operation, outcome, took } => self.requested(*operation, outcome, *took),
            StoreEvent::BrokeHold => metrics::counter!("dlock_breaks_total", self.labels.to_vec()).increment(1),
            _ => {}
        }
    }

    fn requested(&self, operation: Operation, outcome: &RequestOutcome, took: Duration) {
        let labels =
            || [&self.labels[..], &[metrics::Label::from_static_parts("operation", operation.as_str())]].concat();
        let counter = || {
            let outcome = metrics::Label::from_static_parts("outcome", outcome.as_str());
            metrics::counter!("dlock_store_requests_total", [labels(), vec![outcome]].concat())
        };
        let new = || {
            let time = metrics::histogram!("dlock_store_request_seconds", labels());
            (operation, Requests { answered: OnceLock::new(), time })
        };
        let (_, requests) = self.requests.find_or_add(|(of, _)| *of == operation, new);
        requests.time.record(took);
        match outcome {
            RequestOutcome::Answered => requests.answered.get_or_init(counter).increment(1),
            _ => counter().increment(1),
        }
        match outcome {
            RequestOutcome::GivenUp => return,
            RequestOutcome::Failed(ErrorKind::Outage) => return self.up.set(false, &self.labels),
            _ => self.up.set(true, &self.labels),
        }
        // A guarded store answers all other requests.
        if matches!(operation, Operation::Acquire | Operation::AcquireAll) {
            self.guarded.set(*outcome == RequestOutcome::Guarded, &self.labels);
        }
    }
}

/// A gauge of 0 or 1, which is written when it changes.
struct Flag {
    name: &'static str,
    last: AtomicU8,
}

impl Flag {
    const UNKNOWN: u8 = 2;

    const fn new(name: &'static str) -> Self {
        Self { name, last: AtomicU8::new(Self::UNKNOWN) }
    }

    #[inline]
    fn set(&self, is_set: bool, labels: &[metrics::Label]) {
        if self.last.load(Ordering::Relaxed) != u8::from(is_set) {
            self.write(is_set, labels);
        }
    }

    #[cold]
    fn write(&self, is_set: bool, labels: &[metrics::Label]) {
        let now = u8::from(is_set);
        if self.last.swap(now, Ordering::Relaxed) != now {
            metrics::gauge!(self.name, labels.to_vec()).set(f64::from(now));
        }
    }
}
