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

    #[inline]
    pub(super) fn count(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Requested { operation, outcome, took } => self.requested(*operation, outcome, *took),
            StoreEvent::BrokeHold => self.broke_hold(),
            _ => {}
        }
    }

    #[cold]
    fn broke_hold(&self) {
        metrics::counter!("dlock_breaks_total", self.labels.to_vec()).increment(1);
    }

    #[inline]
    fn requested(&self, operation: Operation, outcome: &RequestOutcome, took: Duration) {
        let found = self.requests.find(|(of, _)| *of == operation);
        let (_, requests) = found.unwrap_or_else(|| self.first(operation));
        requests.time.record(took);
        if !matches!(outcome, RequestOutcome::Answered) {
            return self.not_answered(operation, outcome);
        }
        let answered = requests.answered.get();
        answered.unwrap_or_else(|| self.first_answer(requests, operation)).increment(1);
        self.up.set(true, &self.labels);
        if is_grant(operation) {
            self.guarded.set(false, &self.labels);
        }
    }

    #[cold]
    fn not_answered(&self, operation: Operation, outcome: &RequestOutcome) {
        self.counter(operation, outcome).increment(1);
        match outcome {
            RequestOutcome::GivenUp => return,
            RequestOutcome::Failed(ErrorKind::Outage) => return self.up.set(false, &self.labels),
            _ => self.up.set(true, &self.labels),
        }
        if is_grant(operation) {
            self.guarded.set(*outcome == RequestOutcome::Guarded, &self.labels);
        }
    }

    #[cold]
    fn first(&self, operation: Operation) -> &(Operation, Requests) {
        let new = || {
            let time = metrics::histogram!("dlock_store_request_seconds", self.labels_of(operation));
            (operation, Requests { answered: OnceLock::new(), time })
        };
        self.requests.find_or_add(|(of, _)| *of == operation, new)
    }

    #[cold]
    fn first_answer<'a>(&self, requests: &'a Requests, operation: Operation) -> &'a Counter {
        requests.answered.get_or_init(|| self.counter(operation, &RequestOutcome::Answered))
    }

    fn counter(&self, operation: Operation, outcome: &RequestOutcome) -> Counter {
        let mut labels = self.labels_of(operation);
        labels.push(metrics::Label::from_static_parts("outcome", outcome.as_str()));
        metrics::counter!("dlock_store_requests_total", labels)
    }

    fn labels_of(&self, operation: Operation) -> Vec<metrics::Label> {
        [&self.labels[..], &[metrics::Label::from_static_parts("operation", operation.as_str())]].concat()
    }
}

/// A guarded store answers all other requests.
const fn is_grant(operation: Operation) -> bool {
    matches!(operation, Operation::Acquire | Operation::AcquireAll)
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
