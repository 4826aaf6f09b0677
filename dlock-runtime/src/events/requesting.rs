//! Tells the observers of each request to a store.

use std::sync::Arc;

use dlock_contract::{BootInstant, Error};
use dlock_store::line;

use crate::events::lines::write_failed_wait;
use crate::events::observe::Events;
use crate::events::store_event::{Operation, RequestOutcome, StoreEvent};
use crate::site::StoreLabel;

/// A store and its observers.
pub(crate) struct ObservedStore {
    label: Arc<StoreLabel>,
    events: Arc<Events>,
}

impl ObservedStore {
    pub(crate) const fn new(label: Arc<StoreLabel>, events: Arc<Events>) -> Self {
        Self { label, events }
    }

    pub(crate) fn tell(&self, event: &StoreEvent) {
        self.events.tell_of_store(&self.label, event);
    }

    /// Whether the log tells of an outage now.
    pub(crate) fn is_failing(&self) -> bool {
        self.events.is_failing(&self.label.name)
    }

    /// Notes a request that has failed while the store keeps failing, for the log of outages.
    pub(crate) fn note_failure(&self, error: &Error) {
        self.events.note_failed_request(&self.label, error);
    }

    /// Tells the log that waiters hear no news, though the store may answer all requests. In an outage that is nothing new.
    pub(crate) fn note_failed_wait(&self, error: &Error) {
        let (store, kind) = (self.label.clone(), error.kind().as_str());
        let (reason, code) = (error.message().to_owned(), error.code().map(str::to_owned));
        let write = move |told| write_failed_wait(&store, kind, (&reason, code.as_deref()), told);
        if self.is_failing() {
            line(move || write(None));
        } else {
            self.events.in_turn(&self.label.name, ("failed wait", kind), write);
        }
    }

    /// Notes an answer, for the log of outages.
    pub(crate) fn note_answer(&self) {
        self.events.note_answer(&self.label.name);
    }
}

/// A request that observers will hear of. Dropping it before its end reports that the caller gave it up.
///
/// Small, because it is a part of the future of each request.
pub(crate) struct Requesting<'a> {
    store: &'a ObservedStore,
    operation: Operation,
    since: BootInstant,
    has_ended: bool,
}

impl<'a> Requesting<'a> {
    /// `None` if nobody observes.
    pub(crate) fn begin(store: &'a ObservedStore, operation: Operation, since: BootInstant) -> Option<Self> {
        // Not `then_some`: it would make one in any case, and drop it.
        store.events.has_observers().then(|| Self { store, operation, since, has_ended: false })
    }

    pub(crate) fn ended(mut self, outcome: RequestOutcome) {
        self.has_ended = true;
        self.tell(outcome);
    }

    fn tell(&self, outcome: RequestOutcome) {
        let took = self.store.events.now().since(self.since);
        self.store.tell(&StoreEvent::Requested { operation: self.operation, outcome, took });
    }
}

impl Drop for Requesting<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.tell(RequestOutcome::GivenUp);
        }
    }
}
