//! One try to get a permit: a read of the permits, and a transaction if one seems free.

use dlock_contract::{Claim, Error, ErrorKind, Result};

use crate::api::kv::{self, Indexed};
use crate::api::txn::{self, Op, OpFailure, TxnOutcome};
use crate::lock::claim_state::ClaimSession;
use crate::lock::name::Name;
use crate::lock::permits::{Permits, other_mode};
use crate::lock::shared::Shared;
use crate::lock::try_result::{TryResult, check_flags, unsent};
use crate::lock::value::{HoldValue, SEMAPHORE};
use crate::lock::wait::Awaited;

impl Shared {
    pub(crate) async fn try_permit(
        &self,
        claim: &Claim,
        limit: u32,
        name: &Name,
        session: &mut Option<ClaimSession>,
    ) -> Result<TryResult> {
        let seen = kv::read_all(&self.http, &name.below, None).await;
        let Indexed { found, index } = seen.map_err(|error| unsent(error, session.as_ref()))?;
        let permits = Permits::of(name, &found);
        if let Some(counter) = &permits.counter {
            check_flags(counter, SEMAPHORE)?;
            if permits.count.is_none() {
                let text = "the count of permits in Consul cannot be read; delete the key when no holder is left";
                return Err(Error::new(ErrorKind::CorruptState, text).with_key(&counter.key));
            }
        }
        if permits.limit(self.http.settings().literal).is_some_and(|other| other != limit) {
            return Err(other_mode(name));
        }
        let ours = session.as_ref().and_then(|session| permits.living.get(&session.id));
        if let Some(entry) = ours {
            let slot = HoldValue::read(&entry.text()).and_then(|hold_value| hold_value.slot);
            let lives = self.live_session_id(claim, session, true).await?.is_some();
            return Ok(if lives { TryResult::Won { token: entry.modify_index, slot } } else { TryResult::Retry });
        }
        if permits.living.len() >= limit as usize {
            // Names the oldest holder with a note. If none has a note, as with foreign clients, names the oldest
            // holder.
            let oldest = permits
                .living
                .values()
                .min_by_key(|entry| (HoldValue::read(&entry.text()).is_none(), entry.modify_index));
            let by = oldest.map(|entry| HoldValue::note_of(&entry.text()));
            return Ok(TryResult::Held { awaited: Awaited::Permits(name.clone(), limit), index, by });
        }
        self.take_permit(claim, limit, name, &permits, session).await
    }

    async fn take_permit(
        &self,
        claim: &Claim,
        limit: u32,
        name: &Name,
        permits: &Permits,
        session: &mut Option<ClaimSession>,
    ) -> Result<TryResult> {
        let Some(session_id) = self.live_session_id(claim, session, false).await? else { return Ok(TryResult::Retry) };
        let slot = permits.lowest_free_slot();
        let (key, hold_value) = (name.permit(&session_id), HoldValue::of(claim, Some(slot)).to_text());
        let count = permits.with(limit, Some(&session_id), None).to_text();
        let mut lock_index = 0;
        loop {
            let ops = [
                Op::lock(&key, &session_id, SEMAPHORE, &hold_value),
                Op::write_unchanged(&name.semaphore, permits.index, SEMAPHORE, &count),
                Op::unchanged(&name.lock, lock_index),
            ];
            let failures = match txn::run(&self.http, &ops).await? {
                TxnOutcome::Done(entries) => {
                    let token = entries.first().map(|entry| entry.modify_index);
                    let token = token.ok_or_else(|| {
                        Error::new(
                            ErrorKind::Protocol,
                            "the answer to a transaction that took a permit does not have its key",
                        )
                    })?;
                    return Ok(TryResult::Won { token, slot: Some(slot) });
                }
                TxnOutcome::Refused(failures) => failures,
            };
            if failures.iter().any(OpFailure::is_dead_session) {
                *session = None;
            }
            let only_the_lock = matches!(&failures[..], [only] if only.op_index == 2);
            if !only_the_lock || lock_index != 0 {
                return Ok(TryResult::Retry);
            }
            // A foreign client keeps the key of its lock when it frees the lock.
            let Some(entry) = kv::read(&self.http, &name.lock, None).await?.found else { return Ok(TryResult::Retry) };
            if entry.session.is_some() {
                return Err(other_mode(name));
            }
            lock_index = entry.modify_index;
        }
    }
}
