//! The queue of one key in this process: the caller with the turn, the holds that left it to others, and the waiters.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Error, Mode, Note};
use dlock_store::engine::SoleThread;
use smallvec::SmallVec;

use super::handover::Handover;

/// A caller that can go on, and does not for this long, is not polled.
pub(crate) const TAKEN_UP_WITHIN: Duration = Duration::from_secs(2);

/// The queue of one key. Present only while a caller has the turn, or a hold that has left it to others.
#[derive(Debug, Default)]
pub(super) struct KeyQueue {
    /// The caller with the turn. If no caller has it, the only waiters are one for which the release of a hold will ask,
    /// and those behind it.
    pub(super) turn: Option<Caller>,
    /// The holds that have left the turn to others; two for the moment in which one passes to the next.
    pub(super) holds: SmallVec<[LocalHold; 1]>,
    /// How often the store has answered a caller of this process, by a grant or by saying that others hold the lock.
    pub(super) answers: u32,
    /// The store's error, if it did not answer the last caller that asked.
    pub(super) failed: Option<Box<Error>>,
    /// The lock mode that the caller with the turn asks for.
    pub(super) mode: Mode,
    /// Absent until a caller waits behind another: most locks are held without a neighbour, and there may be many.
    pub(super) waiters: Option<Box<Waiters>>,
}

/// The caller with the turn, or one that has left the turn to others and waits in the store's queue.
#[derive(Debug)]
pub(super) struct Caller {
    /// Of the caller with the turn.
    pub(super) state: TurnState,
    /// The number of its [`Turn`](super::Turn). One with another number has lost its turn.
    pub(super) id: u64,
    pub(super) claim: Arc<Claim>,
    /// Its thread, if its runtime has no other thread.
    pub(super) sole_thread: Option<SoleThread>,
    /// See [`TurnRequest::won`].
    pub(super) won: Option<Weak<dyn Won>>,
    /// If it has not acted by then, it is not polled, and loses the turn or its place. `None` as long as no other caller has looked:
    /// so a call without neighbours does not look at the clock.
    pub(super) acts_by: Option<BootInstant>,
}

/// The state of the caller with the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnState {
    /// The caller asks, and there is no answer yet. It is unknown whether the lock is held.
    Asks,
    /// It waits too, because others hold the lock.
    Waits,
    /// It holds the lock.
    Holds,
    /// The release of its hold is on its way, or that of another hold, which asks for this caller.
    Releases,
    /// It is gone. The turn is kept until its leftovers in the store are gone too.
    Leaves,
}

/// The callers that have to wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) next_ticket: u64,
    pub(super) waiting: BTreeMap<u64, Waiter>,
    pub(super) in_store_queue: SmallVec<[Caller; 1]>,
    /// The waiter that has the turn now, until it has noticed.
    pub(super) called: Option<(u64, TurnRequest)>,
    /// The waiters that have not noticed their turn for too long. At its next poll such a waiter has its place again.
    pub(super) passed_over: BTreeMap<u64, TurnRequest>,
    /// The time by which the releases that are on their way must be over; `None` as long as no caller has looked.
    pub(super) released_by: Option<BootInstant>,
    /// The handover that comes to this waiter with the turn.
    pub(super) handover: Option<Box<Handover>>,
    /// Callers that do not wait for others, and that were refused by the store's answer to another caller. Kept until
    /// they notice.
    pub(super) refused: BTreeMap<u64, KnownState>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) waker: Option<Waker>,
    pub(super) request: TurnRequest,
}

/// A caller's request for the turn.
#[derive(Clone, Debug)]
pub(crate) struct TurnRequest {
    pub(crate) claim: Arc<Claim>,
    /// The most callers that it waits behind. `None`: it does not wait for them, but for the store's answer to one that
    /// asks.
    pub(crate) max_ahead: Option<usize>,
    /// The caller's thread, if its runtime has no other thread.
    pub(crate) sole_thread: Option<SoleThread>,
    /// The ttl of a caller to which a hold may be passed on; `None` for other callers.
    pub(crate) cohort_ttl: Option<Duration>,
    /// The end of the wait of a caller for which a neighbour's release may ask; `None` for other callers.
    pub(crate) release_asks_until: Option<BootInstant>,
    /// The locks that a call for several keys has already. It gives them back if it is not polled. Weak, because the end of
    /// a hold may lock this queue.
    pub(crate) won: Option<Weak<dyn Won>>,
}

/// The locks that a call for several keys has won, and has not got yet. The queue does not know holds.
pub(crate) trait Won: fmt::Debug + Send + Sync {
    /// Releases them on our thread.
    fn give_back(self: Arc<Self>);
}

impl TurnRequest {
    /// Whether the caller must wait in the store's queue from the beginning.
    pub(super) fn is_fair(&self) -> bool {
        self.claim.fair
    }

    /// Whether the caller keeps other locks of a store that finds callers which wait for each other. It waits in the store and
    /// behind no caller of this process, since the store sees only who waits there.
    fn holds_others(&self) -> bool {
        !self.claim.inside().is_empty()
    }
}

/// The state of the lock, as far as it is known, when a wait for the turn has ended without it.
#[derive(Debug)]
pub(crate) enum KnownState {
    /// Others have held it meanwhile. The caller before has this note.
    Contended(Option<Note>),
    /// The store did not answer the caller before.
    Failed(Error),
    /// The caller before, which has this note, has no answer of the store yet.
    Nothing(Option<Note>),
}

/// A hold that has left the turn to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalHold {
    /// The caller's thread, if its runtime has no other thread.
    pub(crate) sole_thread: Option<SoleThread>,
    /// The runtime of the callers for which its release can request the lock; `None` if its release requests nothing. A
    /// caller of another runtime asks the store itself: its runtime may run while this one is blocked.
    pub(crate) serves: Option<ServedRuntime>,
    /// Whether its release is on its way.
    pub(crate) is_releasing: bool,
}

/// The callers of one runtime, or those outside of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServedRuntime(pub(crate) Option<dlock_contract::Origin>);

impl Caller {
    fn new(id: u64, state: TurnState, request: TurnRequest) -> Self {
        let TurnRequest { claim, sole_thread, won, .. } = request;
        Self { state, id, claim, sole_thread, won, acts_by: None }
    }
}

impl KeyQueue {
    pub(super) fn waiters(&mut self) -> &mut Waiters {
        self.waiters.get_or_insert_default()
    }

    /// The callers that wait for the turn, in their order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().flat_map(|waiters| waiters.waiting.values())
    }

    /// The callers that have left the turn to others and wait in the store's queue.
    pub(super) fn in_store_queue(&self) -> impl Iterator<Item = &Caller> {
        self.waiters.iter().flat_map(|waiters| &waiters.in_store_queue)
    }

    pub(super) fn first(&self) -> Option<(u64, &Waiter)> {
        let (ticket, waiter) = self.waiters.as_ref()?.waiting.first_key_value()?;
        Some((*ticket, waiter))
    }

    /// The number of waiters. The caller with the turn is one of them once it knows that it has to wait.
    pub(super) fn waiter_count(&self) -> usize {
        self.waiters.as_ref().map_or(0, |waiters| waiters.len()) + usize::from(self.state() == Some(TurnState::Waits))
    }

    /// Changes the state of the caller with the turn.
    pub(super) fn set_state(&mut self, state: TurnState) {
        if let Some(owner) = &mut self.turn {
            owner.state = state;
            // It has acted.
            owner.acts_by = None;
        }
    }

    /// The caller that waits in the store's queue, by its number.
    pub(super) fn waiter_in_store(&mut self, id: u64) -> Option<&mut Caller> {
        self.waiters.as_mut()?.in_store_queue.iter_mut().find(|waiter| waiter.id == id)
    }

    /// Removes a caller from those that wait in the store's queue. False if it was not there.
    pub(super) fn leave_store_queue(&mut self, id: u64) -> bool {
        let all = self.waiters.as_mut().map(|waiters| &mut waiters.in_store_queue);
        let index = all.as_ref().and_then(|all| all.iter().position(|waiter| waiter.id == id));
        all.zip(index).map(|(all, index)| all.swap_remove(index)).is_some()
    }

    pub(super) fn state(&self) -> Option<TurnState> {
        self.turn.as_ref().map(|owner| owner.state)
    }

    /// The caller with the turn, if its number is this.
    pub(super) fn owner(&mut self, id: u64) -> Option<&mut Caller> {
        self.turn.as_mut().filter(|owner| owner.id == id)
    }

    /// Gives the turn to a caller.
    pub(super) fn give_turn(&mut self, id: u64, request: TurnRequest) {
        self.mode = request.claim.mode;
        let state = if self.is_left_to_others() { TurnState::Waits } else { TurnState::Asks };
        self.turn = Some(Caller::new(id, state, request));
    }

    /// Whether the lock is held, as far as this process knows.
    pub(super) fn is_contended(&self) -> bool {
        matches!(self.state(), Some(TurnState::Holds | TurnState::Waits | TurnState::Releases))
            || self.is_left_to_others()
    }

    /// The store has answered the caller with the turn: somebody holds the lock. This answers the callers that do not
    /// wait, too, and those that wait in the store. Returns the wakers of these.
    pub(super) fn note_held(&mut self) -> Vec<Waker> {
        self.note_answer();
        let mut wakers = self.refuse(|| KnownState::Contended(None));
        let waiting = self.waiters.iter_mut().flat_map(|waiters| waiters.waiting.values_mut());
        wakers.extend(waiting.filter(|waiter| waiter.request.holds_others()).filter_map(|waiter| waiter.waker.take()));
        wakers
    }

    /// Whether a waiter must wait in the store's queue now.
    pub(super) fn belongs_in_store_queue(&self, ticket: u64) -> bool {
        let waiter = self.waiters.as_ref().and_then(|waiters| waiters.waiting.get(&ticket));
        self.is_contended() && waiter.is_some_and(|waiter| waiter.request.holds_others())
    }

    /// Sends a waiter to the store's queue. Returns it.
    pub(super) fn send_to_store_queue(&mut self, ticket: u64, id: u64) -> Option<Waiter> {
        let waiters = self.waiters();
        let waiter = waiters.waiting.remove(&ticket)?;
        waiters.in_store_queue.push(Caller::new(id, TurnState::Waits, waiter.request.clone()));
        Some(waiter)
    }

    /// The store has answered a caller of this process.
    pub(super) fn note_answer(&mut self) {
        self.answers = self.answers.wrapping_add(1);
        self.failed = None;
    }

    /// Refuses the callers that do not wait, and returns their wakers.
    pub(super) fn refuse(&mut self, why: impl Fn() -> KnownState) -> Vec<Waker> {
        let Some(waiters) = &mut self.waiters else { return Vec::new() };
        let refused: Vec<_> = waiters.waiting.extract_if(.., |_, waiter| waiter.request.max_ahead.is_none()).collect();
        waiters.refused.extend(refused.iter().map(|(ticket, _)| (*ticket, why())));
        refused.into_iter().filter_map(|(_, waiter)| waiter.waker).collect()
    }

    /// Whether a caller has left the turn to others.
    pub(super) fn is_left_to_others(&self) -> bool {
        !self.holds.is_empty() || self.waiters.as_ref().is_some_and(|waiters| !waiters.in_store_queue.is_empty())
    }

    /// Whether no caller needs this queue any more.
    pub(super) fn is_forgotten(&self) -> bool {
        let has_noticed = |waiters: &Waiters| waiters.refused.is_empty() && waiters.passed_over.is_empty();
        !self.is_left_to_others() && self.waiters.as_deref().is_none_or(has_noticed)
    }

    /// Whether a release will ask for this caller.
    pub(super) fn is_served(&self, request: &TurnRequest) -> bool {
        let serves = Some(ServedRuntime(request.claim.origin));
        request.release_asks_until.is_some() && self.holds.iter().any(|hold| hold.serves == serves)
    }

    /// Takes the next waiter out of the queue: the first one. If a release will ask for the first one, it takes the
    /// first waiter that must wait in the store's queue from the beginning.
    pub(super) fn take_next(&mut self) -> Option<(u64, Waiter)> {
        let (mut ticket, first) = self.first()?;
        if self.is_served(&first.request) {
            let fair = self.waiters.as_ref()?.waiting.iter().find(|(_, waiter)| waiter.request.is_fair());
            ticket = *fair?.0;
        }
        self.waiters().waiting.remove_entry(&ticket)
    }
}

impl Waiters {
    fn len(&self) -> usize {
        self.waiting.len() + self.in_store_queue.len()
    }
}

/// Removes one value that is equal to `one`.
pub(super) fn remove_one<T: PartialEq>(all: &mut SmallVec<[T; 1]>, one: T) {
    if let Some(index) = all.iter().position(|other| *other == one) {
        all.swap_remove(index);
    }
}
