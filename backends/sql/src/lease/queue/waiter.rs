//! One waiter of a wait queue: its state, which its task and its caller share, and how it is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Hold, Note, Owner, Signal, Wake};
use dlock_store::CallerRuntime;
use tokio::sync::{Notify, OwnedMutexGuard, watch};

use crate::connection::pending_attempts::{PendingAttempt, PendingAttempts};
use crate::lease::queue::work::Work;

/// One waiter.
pub(crate) struct Waiter {
    pub(crate) claim: Arc<Claim>,
    pub(crate) until: BootInstant,
    pending_attempts: Arc<PendingAttempts>,
    /// Only one of the two asks for the row at a time: the waiter's task, or an attempt that the engine makes
    /// meanwhile.
    row: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<WaiterState>,
    news: watch::Sender<()>,
    given_up: Notify,
    /// The task, which has the session. Dropping it leaves the queue.
    work: Arc<Work>,
}

#[derive(Default)]
struct WaiterState {
    /// The row's holder as the server reports it; `None` as long as nobody knows that there is one.
    holder: Option<HolderState>,
    /// Whether the statement that takes the row is under way.
    is_taking: bool,
    is_given_up: bool,
    outcome: Option<Outcome>,
    has_ended: bool,
}

/// The holder of a row, as the server reports it.
#[derive(Clone, Default)]
pub(crate) struct HolderState {
    pub(crate) ask_by: Option<BootInstant>,
    pub(crate) lease_left: Option<Duration>,
    pub(crate) held_by: Option<Note>,
}

/// The end of a wait.
pub(crate) enum Outcome {
    Granted(Hold),
    /// The caller has to ask the store itself.
    Ask,
}

/// The right to ask for the row.
pub(crate) type AttemptGuard = OwnedMutexGuard<()>;

impl Waiter {
    pub(crate) fn new(claim: &Arc<Claim>, until: BootInstant, pending_attempts: &Arc<PendingAttempts>) -> Self {
        Self {
            claim: claim.clone(),
            until,
            pending_attempts: pending_attempts.clone(),
            row: Arc::default(),
            state: Mutex::default(),
            news: watch::Sender::new(()),
            given_up: Notify::new(),
            work: Arc::default(),
        }
    }

    /// Begins the wait, in a task of that runtime.
    pub(crate) fn begin(
        self: &Arc<Self>,
        runtime: &CallerRuntime,
        wait: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let ends = Ends(self.clone());
        self.work.begin(runtime, async move {
            let waiter = &ends.0;
            tokio::select! {
                biased;
                () = waiter.stopped() => {}
                outcome = wait => waiter.end(outcome),
            }
        });
    }

    /// Ends when the waiter was given up and no statement is under way. A statement that is under way may still take
    /// the row.
    async fn stopped(&self) {
        loop {
            self.given_up.notified().await;
            if !self.lock().is_taking {
                return;
            }
        }
    }

    /// Waits for the right to ask for the row.
    pub(crate) async fn attempt_guard(&self) -> AttemptGuard {
        self.row.clone().lock_owned().await
    }

    /// Notes that the statement that takes the row is about to be sent. `None`: the waiter was given up.
    pub(crate) fn begin_to_take(self: &Arc<Self>, guard: AttemptGuard) -> Option<Taking> {
        let mut state = self.lock();
        if state.is_given_up {
            return None;
        }
        state.is_taking = true;
        Some(Taking {
            waiter: self.clone(),
            _pending_attempt: self.pending_attempts.begin(self.claim.owner),
            _guard: guard,
        })
    }

    /// Notes that others have the lock.
    pub(crate) fn note_contended(&self, holder: HolderState) {
        self.lock().holder = Some(holder);
        self.news.send_replace(());
    }

    fn end(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.has_ended = true;
        let left = if state.is_given_up { Some(outcome) } else { state.outcome.replace(outcome) };
        drop(state);
        // Outside of the lock: a hold that nobody takes closes its session.
        drop(left);
        self.news.send_replace(());
    }

    /// Ends the wait. If the statement that takes the row is under way, the wait ends after it. Returns a hold that
    /// nobody has taken.
    pub(crate) fn give_up(&self) -> Option<Hold> {
        let mut state = self.lock();
        state.is_given_up = true;
        let outcome = state.outcome.take();
        let is_taking = state.is_taking;
        drop(state);
        self.given_up.notify_one();
        if !is_taking {
            // If the task is polled just now, it has got the notice.
            self.work.stop();
        }
        match outcome {
            Some(Outcome::Granted(hold)) => Some(hold),
            _ => None,
        }
    }

    /// The hold, if the task has won it and nobody has taken it.
    pub(crate) fn granted(&self) -> Option<Hold> {
        let mut state = self.lock();
        match state.outcome.take() {
            Some(Outcome::Granted(hold)) => Some(hold),
            other => {
                state.outcome = other;
                None
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits for the end.
    async fn ended(&self) -> Outcome {
        self.until(|state| state.has_ended).await;
        self.lock().outcome.take().unwrap_or(Outcome::Ask)
    }

    /// Waits until it is known whether others have the lock. `None`: they have.
    pub(crate) async fn settled(&self) -> Option<Outcome> {
        self.until(|state| state.has_ended || state.holder.is_some()).await;
        let mut state = self.lock();
        state.has_ended.then(|| state.outcome.take().unwrap_or(Outcome::Ask))
    }

    async fn until(&self, is_so: impl Fn(&WaiterState) -> bool) {
        let mut news = self.news.subscribe();
        while !is_so(&self.lock()) {
            // The sender is in this waiter.
            let _ = news.changed().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the wait with its work, as when the runtime ends.
struct Ends(Arc<Waiter>);

impl Drop for Ends {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.end(Outcome::Ask);
        }
    }
}

/// The statement that takes the row is under way.
pub(crate) struct Taking {
    waiter: Arc<Waiter>,
    _pending_attempt: PendingAttempt,
    _guard: AttemptGuard,
}

impl Drop for Taking {
    fn drop(&mut self) {
        let mut state = self.waiter.lock();
        state.is_taking = false;
        let is_given_up = state.is_given_up;
        drop(state);
        if is_given_up {
            self.waiter.given_up.notify_one();
        }
    }
}

/// The caller's place in the queue. If it is dropped, the waiter is given up.
pub(crate) struct Place {
    pub(crate) waiter: Arc<Waiter>,
    places: Arc<Places>,
}

/// The places of a store's waiters, by their owners.
#[derive(Default)]
pub(crate) struct Places(Mutex<HashMap<Owner, Weak<Place>>>);

impl Places {
    pub(crate) fn add(self: &Arc<Self>, waiter: &Arc<Waiter>) -> Arc<Place> {
        let place = Arc::new(Place { waiter: waiter.clone(), places: self.clone() });
        self.lock().insert(waiter.claim.owner, Arc::downgrade(&place));
        place
    }

    pub(crate) fn of(&self, owner: &Owner) -> Option<Arc<Place>> {
        self.lock().get(owner)?.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Weak<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The news that the caller waits for.
    pub(crate) fn wake(self: Arc<Self>) -> Wake {
        let holder = self.waiter.lock().holder.clone().unwrap_or_default();
        let signal = async move {
            Ok(match self.waiter.ended().await {
                Outcome::Granted(hold) => Signal::Granted(hold),
                Outcome::Ask => Signal::Ask,
            })
        };
        let mut wake = Wake::on(signal).held_by(holder.held_by);
        (wake.ask_by, wake.lease_left) = (holder.ask_by, holder.lease_left);
        wake
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.places.lock();
        if places.get(&self.waiter.claim.owner).is_some_and(|place| std::ptr::eq(place.as_ptr(), self)) {
            places.remove(&self.waiter.claim.owner);
        }
        drop(places);
        // A hold that nobody has taken: the engine abandons its claim.
        drop(self.waiter.give_up());
    }
}
