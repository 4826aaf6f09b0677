//! One try to get the exclusive lock: a read, and a transaction if the lock seems free.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dlock_contract::{Claim, Error, ErrorKind, Result};

use crate::api::kv::{self, Entry};
use crate::api::txn::{self, Op, OpFailure, TxnOutcome};
use crate::lock::claim_state::{ClaimSession, ClaimState};
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::shared::Shared;
use crate::lock::try_result::{TryResult, check_flags, unsent};
use crate::lock::value::{HoldValue, LOCK};
use crate::lock::wait::Awaited;

impl Shared {
    pub(crate) async fn try_lock(
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
            false if waits && self.streaks.end_streak_if_over(&claim.key, self.http.clock().now()) => Mark::Respected,
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
    pub(crate) async fn leave_mark(
        &self,
        claim: &Claim,
        state: &ClaimState,
        session: &mut Option<ClaimSession>,
    ) -> Result<()> {
        let Some(session_id) = self.live_session_id(claim, session, false).await? else { return Ok(()) };
        let outcome = txn::run(&self.http, &[Op::lock(&state.name.wanted, &session_id, 0, "")]).await?;
        state.is_marked.store(matches!(outcome, TxnOutcome::Done(_)), Ordering::Relaxed);
        Ok(())
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
