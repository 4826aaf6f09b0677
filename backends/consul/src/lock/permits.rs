//! Permits, stored as by Consul's own semaphore: one key counts the holders, and each holder has a key of its own.

use std::collections::{BTreeMap, BTreeSet};

use dlock_contract::{Claim, Error, ErrorKind, Result};

use crate::api::kv::{self, Entry, Indexed};
use crate::api::txn::{self, Op, OpFailure, TxnOutcome};
use crate::lock::acquire::{TryResult, check_flags, unsent};
use crate::lock::claim_state::ClaimSession;
use crate::lock::name::Name;
use crate::lock::shared::Shared;
use crate::lock::value::{HoldValue, PermitCount, SEMAPHORE};
use crate::lock::wait::Awaited;

/// The permits of a lock, as one read shows them.
pub(crate) struct Permits {
    /// The entry under the name of the count: the count, or a foreign client's lock.
    pub(crate) counter: Option<Entry>,
    /// The index at which this entry was last changed; zero if there is none.
    pub(crate) index: u64,
    /// The count, if the entry has one.
    count: Option<PermitCount>,
    /// The keys of the holders, by session. The sessions are alive.
    pub(crate) living: BTreeMap<String, Entry>,
}

impl Permits {
    /// Reads the permits from all keys below the lock's name. Deeper keys belong to other locks.
    pub(crate) fn of(name: &Name, entries: &[Entry]) -> Self {
        let counter = entries.iter().find(|entry| entry.key == name.semaphore).cloned();
        let index = counter.as_ref().map_or(0, |entry| entry.modify_index);
        let count: Option<PermitCount> = counter.as_ref().and_then(|entry| serde_json::from_str(&entry.text()).ok());
        let has_permit = |session_id: &str| count.as_ref().is_some_and(|count| count.holders.contains_key(session_id));
        // An ended session holds no key, so only sessions that are alive remain.
        let living = entries.iter().filter_map(|entry| {
            let session_id = entry.session.clone().filter(|session_id| has_permit(session_id))?;
            (entry.key == name.permit(&session_id)).then_some(())?;
            Some((session_id, entry.clone()))
        });
        Self { index, living: living.collect(), count, counter }
    }

    /// Whether the key of the count is a foreign client's lock.
    pub(crate) fn is_foreign(&self) -> bool {
        self.counter.as_ref().is_some_and(|counter| counter.flags != SEMAPHORE)
    }

    /// Fails if anybody holds a permit.
    pub(crate) fn check_none(&self, name: &Name) -> Result<()> {
        if self.living.is_empty() { Ok(()) } else { Err(other_mode(name)) }
    }

    /// The count of the present holders, plus `more` and without `less`.
    fn with(&self, limit: u32, more: Option<&str>, less: Option<&str>) -> PermitCount {
        let stay = self.living.keys().map(String::as_str).filter(|session_id| Some(*session_id) != less);
        PermitCount { limit, holders: stay.chain(more).map(|session_id| (session_id.to_owned(), true)).collect() }
    }

    fn lowest_free_slot(&self) -> u32 {
        let taken: BTreeSet<u32> =
            self.living.values().filter_map(|entry| HoldValue::read(&entry.text())?.slot).collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or(u32::MAX)
    }

    /// The limit that a claim must ask for. `None`: any limit. With `keeps_count`, as for foreign clients, a count
    /// without holders keeps its limit.
    fn limit(&self, keeps_count: bool) -> Option<u32> {
        self.count.as_ref().map(|count| count.limit).filter(|_| keeps_count || !self.living.is_empty())
    }

    /// The operation that removes a session from the count. After the last holder it deletes the count. Left alone, the
    /// count could refuse the next claim, if that has another limit.
    pub(crate) fn without<'a>(&self, name: &'a Name, session_id: &str) -> Option<Op<'a>> {
        let limit = self.count.as_ref()?.limit;
        let count = self.with(limit, None, Some(session_id));
        Some(if count.holders.is_empty() {
            Op::delete_unchanged(&name.semaphore, self.index)
        } else {
            Op::write_unchanged(&name.semaphore, self.index, SEMAPHORE, &count.to_text())
        })
    }
}

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

fn other_mode(name: &Name) -> Error {
    let text = "the key is held in another mode, or has another number of permits";
    Error::new(ErrorKind::KeyConflict, text).with_key(&name.lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_below_the_name_of_another_lock_are_not_counted() {
        let name =
            Name { lock: "pool".into(), semaphore: "pool/.lock".into(), below: "pool/".into(), wanted: String::new() };
        // In the order of a read. The first two are the permits of `pool/-a`, and the last one is a lock `pool/b/.lock`.
        let read = r#"[
            {"Key":"pool/-a/.lock","Flags":1,"Value":"eyJMaW1pdCI6MSwiSG9sZGVycyI6eyJzIjp0cnVlfX0=","ModifyIndex":5},
            {"Key":"pool/-a/s","Flags":1,"Value":null,"Session":"s","ModifyIndex":5},
            {"Key":"pool/.lock","Flags":1,"Value":"eyJMaW1pdCI6MiwiSG9sZGVycyI6eyJzIjp0cnVlfX0=","ModifyIndex":7},
            {"Key":"pool/s","Flags":1,"Value":null,"Session":"s","ModifyIndex":7},
            {"Key":"pool/b/.lock","Flags":2,"Value":null,"Session":"t","ModifyIndex":9}]"#;
        let entries: Vec<Entry> = serde_json::from_str(read).unwrap();
        let permits = Permits::of(&name, &entries);
        assert_eq!((permits.index, permits.limit(false), permits.living["s"].key.as_str()), (7, Some(2), "pool/s"));
        let only_deeper = Permits::of(&name, &[entries[0].clone(), entries[1].clone(), entries[4].clone()]);
        assert!(only_deeper.counter.is_none() && only_deeper.index == 0 && only_deeper.living.is_empty());
    }
}
