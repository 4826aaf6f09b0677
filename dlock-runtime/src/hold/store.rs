//! An installed backend: its name, its local queue, its health, and where its requests run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{Backend, Error, ErrorKind, Identity, LockKey, Origin, Result, RunsOn, WakeStyle};
use dlock_store::engine::{guarded, not_forked};
use dlock_store::{Clock, background};
use futures::future::BoxFuture;

use crate::events::observe::Events;
use crate::events::requesting::{ObservedStore, Requesting};
use crate::events::shutdown::Jobs;
use crate::events::store_event::{Operation, RequestOutcome};
use crate::hold::circuit_breaker::{CONCLUSIVE_TIME, CircuitBreaker};
use crate::hold::cleanup::Cleanups;
use crate::hold::findings::Findings;
pub(crate) use crate::queue::LONGEST_REQUEST;
use crate::queue::LocalQueue;
use crate::site::StoreLabel;

/// A backend under the name it was installed with.
// Aligned: see `Shared`.
#[repr(align(128))]
pub(crate) struct Store {
    pub(crate) name: Arc<str>,
    pub(crate) label: Arc<StoreLabel>,
    pub(crate) observed: ObservedStore,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) queue: Arc<LocalQueue>,
    pub(crate) breaker: Arc<CircuitBreaker>,
    pub(crate) findings: Findings,
    pub(crate) cleanups: Arc<Cleanups>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) clock: Clock,
    /// Whether a task looks for callers that are not polled.
    pub(crate) is_watched: AtomicBool,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({}, {})", self.name, self.backend.profile().kind)
    }
}

/// The request bound: the longest time that one request about a lock with this ttl may take. An answer after the ttl is
/// worth nothing.
pub(crate) fn request_bound(ttl: Duration) -> Duration {
    ttl.min(LONGEST_REQUEST)
}

impl Store {
    pub(super) fn new(
        name: &str,
        backend: Arc<dyn Backend>,
        clock: &Clock,
        jobs: &Arc<Jobs>,
        events: &Arc<Events>,
    ) -> Self {
        let name: Arc<str> = name.into();
        let (kind, host) = (backend.profile().kind, backend.host().map(Into::into));
        let label = Arc::new(StoreLabel { name: name.clone(), kind, host });
        let observed = ObservedStore::new(label.clone(), events.clone());
        let breaker = Arc::default();
        let cleanups = Arc::new(Cleanups::new(clock, &breaker));
        let (queue, jobs, clock) = (Arc::default(), jobs.clone(), clock.clone());
        let (findings, is_watched) = (Findings::default(), AtomicBool::new(false));
        Self { name, label, observed, backend, queue, breaker, findings, cleanups, jobs, clock, is_watched }
    }

    /// Whether both are one backend, which may be installed under several names. Two backends may also be clients of
    /// one store; only the store can show that (`acquire::self_wait`).
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.backend, &other.backend)
    }

    /// The backend, whatever its names.
    #[cfg(debug_assertions)]
    pub(crate) fn instance(&self) -> usize {
        Arc::as_ptr(&self.backend).addr()
    }

    /// Whether a release hands the lock to the first of the store's wait queue, and callers may wait there without a
    /// connection of their own.
    pub(crate) fn hands_on(&self) -> bool {
        let profile = self.backend.profile();
        profile.wake == WakeStyle::Grant && profile.runs_on == RunsOn::Caller
    }

    /// The key with its namespace, and the lock that it is in this store. Two keys may be one lock there.
    pub(crate) fn identify(&self, namespace: &str, key: &KeyBuf) -> Result<(LockKey, Identity)> {
        let key = LockKey::within(namespace, key)?;
        let identity = self.backend.identify(&key)?;
        Ok((key, identity))
    }

    /// Adds the lock and the store to an error. Where the store shares its names with other programs, the lock has the name that
    /// they see; elsewhere it has its key.
    pub(crate) fn named(&self, error: Error, (key, lock): (&LockKey, &LockKey), is_sensitive: bool) -> Error {
        // One key has one hash in all stores.
        let shown = if is_sensitive { key } else { lock };
        error.with_key_or_hash(shown.as_str(), is_sensitive).with_backend(&self.name)
    }

    /// Runs a request about `subject` where its connection lives: in place on the caller's runtime, or on our thread if
    /// the caller has none, or if every hold has a connection of its own, which a blocked runtime would leave unserved.
    pub(crate) async fn ask<S, T>(
        &self,
        operation: Operation,
        bound: Duration,
        subject: &S,
        request: impl for<'a> FnOnce(&'a dyn Backend, &'a S) -> BoxFuture<'a, Result<T>> + Send + 'static,
    ) -> Result<T>
    where
        S: Clone + Send + Sync + 'static,
        T: Send + 'static,
    {
        // Every request goes through here, but renewals, which our own thread sends.
        not_forked()?;
        let clock = &self.clock;
        let since = clock.now();
        let answer_by = since.after(bound);
        let requesting = Requesting::begin(&self.observed, operation, since);
        let on_our_thread = self.backend.profile().runs_on == RunsOn::OwnThread || Origin::here().is_none();
        let answer = if on_our_thread {
            let (backend, subject) = (self.backend.clone(), subject.clone());
            let run = background()?.run(async move { request(&*backend, &subject).await });
            Box::pin(clock.timeout_at(answer_by, run)).await.map(|output| output.and_then(|answer| answer))
        } else {
            // Borrowed: counters that all threads write to would cost every call something.
            clock.timeout_at(answer_by, guarded(request(&*self.backend, subject))).await
        };
        if let Some(requesting) = requesting {
            // Before the answer is moved.
            requesting.ended(match &answer {
                Some(answer) => RequestOutcome::of(answer.as_ref().err()),
                None => RequestOutcome::Failed(ErrorKind::Outage),
            });
        }
        match answer {
            Some(Ok(answer)) => {
                self.breaker.note_answer(&self.name);
                if operation.takes_or_keeps() {
                    self.observed.note_answer();
                }
                Ok(answer)
            }
            Some(Err(error)) => {
                self.note_failure(operation, &error);
                Err(error)
            }
            None => {
                let error = Error::outage(format!("the store did not answer within {bound:.1?}"));
                if bound >= CONCLUSIVE_TIME {
                    self.note_failure(operation, &error);
                }
                Err(error)
            }
        }
    }

    /// Notes a failed request, for the breaker and the log. Calls that ask again have not failed yet, so without this the log would
    /// not show their outage.
    pub(crate) fn note_failure(&self, operation: Operation, error: &Error) {
        let keeps_failing = self.breaker.note_failure(&self.name, error, self.clock.now());
        let outage_goes_on = || CircuitBreaker::is_failure(error) && self.observed.is_failing();
        if operation.takes_or_keeps() && (keeps_failing || outage_goes_on()) {
            self.observed.note_failure(error);
        }
    }
}
