//! One attempt to get a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Hold, Mode, Note, Queue, Result, Validity, Wake};

use crate::api::kv::{self, Entry};
use crate::api::txn::{self, Op, OpFailure, TxnOutcome};
use crate::lock::claim_state::{ClaimSession, ClaimState, HoldSession, StateAccess};
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::shared::Shared;
use crate::lock::turns::TURN_TIME;
use crate::lock::value::{HoldValue, LOCK};
use crate::lock::wait::Awaited;

/// How often an attempt begins again because another claim changed the lock between the read and the transaction.
const MAX_TRIES: u32 = 4;

/// The result of one try: a read of the lock, and a transaction if it seems free.
pub(crate) enum TryResult {
    /// The claim holds the lock.
    Won { token: u64, slot: Option<u32> },
    /// Another claim holds the lock.
    Held { awaited: Awaited, index: u64, by: Option<Note> },
    /// Nobody holds the lock, but Consul's lock-delay still runs.
    Delayed,
    /// Nobody holds the lock. It is left to a waiter of another process.
    GivesWay { index: u64 },
    /// The lock has changed since the read.
    Retry,
}

impl Shared {
    pub(crate) async fn attempt(
        self: Arc<Self>,
        claim: Arc<Claim>,
        queue: Queue,
        state: Arc<ClaimState>,
        access: StateAccess,
    ) -> Result<Attempt> {
        let mut session = access.await;
        let waits = queue != Queue::Leave;
        for _ in 0..MAX_TRIES {
            let result = self.try_once(&claim, &state, &mut session, waits).await.map_err(|error| {
                // Without a session the claim has nothing in the store. If the error was never sent, no abandon follows.
                if session.is_none() {
                    self.states.forget_empty(claim.owner, &state);
                    return error;
                }
                // The claim has a session, even if the last request was never sent. So the engine must abandon it.
                if error.may_have_left() { error } else { Error::outage(error.message().to_owned()).because(error) }
            })?;
            match result {
                TryResult::Won { token, slot } => return self.won(claim, &state, session.as_ref(), token, slot),
                TryResult::Held { awaited, index, by } if waits => {
                    self.turns.refused(&claim.key);
                    // Foreign clients have their session when the lock becomes free. Without one, a waiter would always be late.
                    if self.http.settings().literal {
                        self.live_session_id(&claim, &mut session, false).await?;
                    } else if state.is_passed_over.swap(false, Ordering::Relaxed) {
                        self.leave_mark(&claim, &state, &mut session).await?;
                    }
                    return Ok(Attempt::Contended(self.wake(awaited, index, by)));
                }
                TryResult::Held { by, .. } => {
                    self.leave(&claim, &state, &mut session).await?;
                    return Ok(Attempt::Contended(Wake::poll().held_by(by)));
                }
                TryResult::GivesWay { index } => {
                    let now = self.http.clock().now();
                    self.turns.gives_way(&claim.key, now);
                    let wake = self.wake(Awaited::Lock(state.clone()), index, None);
                    return Ok(Attempt::Contended(wake.ask_by(now.after(TURN_TIME))));
                }
                TryResult::Delayed => {
                    if queue == Queue::Leave {
                        self.leave(&claim, &state, &mut session).await?;
                    }
                    return Ok(Attempt::Contended(self.ask_again_soon()));
                }
                TryResult::Retry => {}
            }
        }
        if queue == Queue::Leave {
            self.leave(&claim, &state, &mut session).await?;
        }
        Ok(Attempt::Contended(self.ask_again_soon()))
    }

    async fn try_once(
        &self,
        claim: &Claim,
        state: &Arc<ClaimState>,
        session: &mut Option<ClaimSession>,
        waits: bool,
    ) -> Result<TryResult> {
        match claim.mode {
            Mode::Exclusive => self.try_lock(claim, state, session, waits).await,
            Mode::Permits(limit) => self.try_permit(claim, limit.get(), &state.name, session).await,
            Mode::Read | Mode::Write => {
                Err(Error::new(ErrorKind::Internal, "readers and writers are not locked in Consul"))
            }
        }
    }

    async fn try_lock(
        &self,
        claim: &Claim,
        state: &Arc<ClaimState>,
        session: &mut Option<ClaimSession>,
        waits: bool,
    ) -> Result<TryResult> {
        let (name, free) = (&*state.name, state.free().take());
        let seen = match free {
            Some(seen) => seen,
            None => kv::read(&self.http, &name.lock, None).await.map_err(|error| unsent(error, session.as_ref()))?,
        };
        if let Some(entry) = &seen.found {
            check_flags(entry, LOCK)?;
            let ours = session.as_ref().is_some_and(|session| entry.is_held_by(&session.id));
            if entry.session.is_some() && !ours {
                let by = Some(HoldValue::note_of(&entry.text()));
                let awaited = Awaited::Lock(state.clone());
                return Ok(TryResult::Held { awaited, index: seen.index, by });
            }
        }
        let mark = match state.is_marked.load(Ordering::Relaxed) {
            true => Mark::Ours,
            false if waits && self.turns.has_had_its_share(&claim.key, self.http.clock().now()) => Mark::Respected,
            false => Mark::Passed,
        };
        match self.take(claim, name, seen.found.as_ref(), (ExpectedCount::None, mark), session).await? {
            TakeResult::Wanted => Ok(TryResult::GivesWay { index: seen.index }),
            // There is a count of permits for this key, or a foreign client's lock has the name of that count.
            TakeResult::Counted => {
                let permits = Permits::of(name, &kv::read_all(&self.http, &name.below, None).await?.found);
                permits.check_none(name)?;
                let counter =
                    if permits.is_foreign() { ExpectedCount::Foreign } else { ExpectedCount::Unused(permits.index) };
                Ok(self.take(claim, name, seen.found.as_ref(), (counter, mark), session).await?.into())
            }
            taken => {
                if matches!(taken, TakeResult::Retry) {
                    state.is_passed_over.store(true, Ordering::Relaxed);
                }
                Ok(taken.into())
            }
        }
    }

    /// Takes the lock, if nothing has changed since the read.
    async fn take(
        &self,
        claim: &Claim,
        name: &Name,
        seen: Option<&Entry>,
        (counter, mark): (ExpectedCount, Mark),
        session: &mut Option<ClaimSession>,
    ) -> Result<TakeResult> {
        let index = seen.map_or(0, |entry| entry.modify_index);
        let is_ours = seen.is_some_and(|entry| entry.session.is_some());
        let Some(session_id) = self.live_session_id(claim, session, is_ours).await? else {
            return Ok(TakeResult::Retry);
        };
        let hold_value = HoldValue::of(claim, None).to_text();
        let mut ops = vec![Op::unchanged(&name.lock, index), Op::lock(&name.lock, &session_id, LOCK, &hold_value)];
        match counter {
            ExpectedCount::None => ops.push(Op::unchanged(&name.semaphore, 0)),
            // Foreign clients expect that a count without holders stays.
            ExpectedCount::Unused(index) if self.http.settings().literal => {
                ops.push(Op::unchanged(&name.semaphore, index))
            }
            ExpectedCount::Unused(index) => ops.push(Op::delete_unchanged(&name.semaphore, index)),
            ExpectedCount::Foreign => {}
        }
        let wanted = ops.len();
        match mark {
            Mark::Ours => ops.push(Op::delete(&name.wanted)),
            Mark::Respected => ops.push(Op::unchanged(&name.wanted, 0)),
            Mark::Passed => {}
        }
        match txn::run(&self.http, &ops).await? {
            TxnOutcome::Done(entries) => {
                // The check before it returns the key as it was before. The last entry has the new index.
                let entry = entries.into_iter().rfind(|entry| entry.key == name.lock);
                let untold = || {
                    Error::new(
                        ErrorKind::Protocol,
                        "the answer to a transaction that took a lock does not have its key",
                    )
                };
                Ok(TakeResult::Won(entry.ok_or_else(untold)?.modify_index))
            }
            TxnOutcome::Refused(failures) => {
                if failures.iter().any(OpFailure::is_dead_session) {
                    *session = None;
                }
                Ok(match &failures[..] {
                    failures if failures.iter().any(OpFailure::is_lock_delay) => TakeResult::Delayed,
                    [only] if only.op_index == wanted && mark == Mark::Respected => TakeResult::Wanted,
                    [only] if only.op_index == 2 && counter == ExpectedCount::None => TakeResult::Counted,
                    _ => TakeResult::Retry,
                })
            }
        }
    }

    /// Leaves the mark of a waiter that was passed over, if no other one has left it.
    async fn leave_mark(&self, claim: &Claim, state: &ClaimState, session: &mut Option<ClaimSession>) -> Result<()> {
        let Some(session_id) = self.live_session_id(claim, session, false).await? else { return Ok(()) };
        let outcome = txn::run(&self.http, &[Op::lock(&state.name.wanted, &session_id, 0, "")]).await?;
        state.is_marked.store(matches!(outcome, TxnOutcome::Done(_)), Ordering::Relaxed);
        Ok(())
    }

    /// The id of the claim's session, with at least two thirds of its time left. `None`: its session has ended.
    pub(crate) async fn live_session_id(
        &self,
        claim: &Claim,
        session: &mut Option<ClaimSession>,
        is_held: bool,
    ) -> Result<Option<String>> {
        let Some(present) = session else {
            return Ok(Some(session.insert(self.new_session(claim).await?).id.clone()));
        };
        // The grant must be valid from now on, so renew a session that is stale, and one that may hold the lock already.
        let is_fresh = self.http.clock().now() < present.confirmed.after(claim.ttl / 3);
        if (is_fresh && !is_held) || self.keep(present).await? {
            return Ok(Some(present.id.clone()));
        }
        *session = None;
        Ok(None)
    }

    fn won(
        &self,
        claim: Arc<Claim>,
        state: &ClaimState,
        session: Option<&ClaimSession>,
        token: u64,
        slot: Option<u32>,
    ) -> Result<Attempt> {
        let session = session.ok_or_else(|| Error::new(ErrorKind::Internal, "a lock was won without a session"))?;
        self.turns.held(&claim.key, self.http.clock().now());
        let validity = Validity::new(session.confirmed, claim.ttl);
        let (name, session_id, watch) = (state.name.clone(), session.id.clone(), self.watch.clone());
        let hold_session = HoldSession { name, session_id, is_permit: slot.is_some(), watch };
        let hold = Hold::new(claim, token, validity)?.with_session(Arc::new(hold_session));
        Ok(Attempt::Acquired(match slot {
            Some(slot) => hold.with_slot(slot),
            None => hold,
        }))
    }
}

/// The count of permits for a key, as an attempt for the exclusive lock expects it.
#[derive(Clone, Copy, PartialEq)]
enum ExpectedCount {
    /// There is no count.
    None,
    /// Nobody has a permit. The count was last changed at this index.
    Unused(u64),
    /// A foreign client's lock has its name.
    Foreign,
}

/// The mark of a waiter of another process, as an attempt treats it.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    /// The mark is this claim's own. The grant deletes it.
    Ours,
    /// This process has had eight holds in a row, so it leaves the lock to the waiter.
    Respected,
    Passed,
}

/// The result of a transaction that takes the exclusive lock.
enum TakeResult {
    Won(u64),
    /// The lock is left to a waiter.
    Wanted,
    Delayed,
    /// There is a count of permits for this key.
    Counted,
    Retry,
}

impl From<TakeResult> for TryResult {
    fn from(taken: TakeResult) -> Self {
        match taken {
            TakeResult::Won(token) => Self::Won { token, slot: None },
            TakeResult::Delayed => Self::Delayed,
            TakeResult::Counted | TakeResult::Wanted | TakeResult::Retry => Self::Retry,
        }
    }
}

/// The error of a failed read. A read leaves nothing in the store. Without a session, earlier requests left nothing either.
pub(crate) fn unsent(error: Error, session: Option<&ClaimSession>) -> Error {
    if session.is_none() { error.never_sent() } else { error }
}

/// Refuses a key without these flags: it does not belong to a lock of this kind.
pub(crate) fn check_flags(entry: &Entry, flags: u64) -> Result<()> {
    if entry.flags == flags {
        return Ok(());
    }
    let text = "the Consul key is not a lock of this mode: its flags differ; rename the lock or delete the key";
    Err(Error::new(ErrorKind::KeyConflict, text).with_key(&entry.key))
}
