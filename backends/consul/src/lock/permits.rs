//! Permits, as Consul's own semaphore keeps them: one key counts the holders, and each holder has a key of its session.

use std::collections::{BTreeMap, BTreeSet};

use dlock_contract::{Claim, Error, ErrorKind, LockKey, Result};

use crate::api::kv::{self, Entry, Seen};
use crate::api::txn::{self, Failure, Op, Outcome};
use crate::lock::acquire::{Step, check_flags, unsent};
use crate::lock::locks::Locks;
use crate::lock::name::Name;
use crate::lock::place::Lease;
use crate::lock::value::{Count, SEMAPHORE, Stamp};
use crate::lock::wait::Awaited;

/// The permits of a lock, as one read shows them.
pub(crate) struct Permits {
    /// The entry in the place of the count: the count, or another tool's lock.
    pub(crate) counter: Option<Entry>,
    /// Where it was last changed; zero if there is none.
    pub(crate) index: u64,
    /// Its content, if it can be read.
    count: Option<Count>,
    /// The keys of the sessions that have a permit and live.
    pub(crate) living: BTreeMap<String, Entry>,
}

impl Permits {
    /// Of all keys below a lock's name. Deeper ones are of other locks.
    pub(crate) fn of(name: &Name, entries: &[Entry]) -> Self {
        let counter = entries.iter().find(|entry| entry.key == name.semaphore).cloned();
        let index = counter.as_ref().map_or(0, |entry| entry.modify_index);
        let count: Option<Count> = counter.as_ref().and_then(|entry| serde_json::from_str(&entry.text()).ok());
        let has_permit = |session: &str| count.as_ref().is_some_and(|count| count.holders.contains_key(session));
        // A session that has ended holds no key.
        let living = entries.iter().filter_map(|entry| {
            let session = entry.session.clone().filter(|session| has_permit(session))?;
            (entry.key == name.permit(&session)).then_some(())?;
            Some((session, entry.clone()))
        });
        Self { index, living: living.collect(), count, counter }
    }

    /// Whether another tool's lock has the name of the count.
    pub(crate) fn is_foreign(&self) -> bool {
        self.counter.as_ref().is_some_and(|counter| counter.flags != SEMAPHORE)
    }

    /// For another mode: nobody may have a permit.
    pub(crate) fn check_none(&self, key: &LockKey) -> Result<()> {
        if self.living.is_empty() { Ok(()) } else { Err(other_mode(key)) }
    }

    /// The count with these sessions as its holders.
    fn with(&self, limit: u32, more: Option<&str>, less: Option<&str>) -> Count {
        let stay = self.living.keys().map(String::as_str).filter(|session| Some(*session) != less);
        Count { limit, holders: stay.chain(more).map(|session| (session.to_owned(), true)).collect() }
    }

    fn lowest_free_slot(&self) -> u32 {
        let taken: BTreeSet<u32> = self.living.values().filter_map(|entry| Stamp::read(&entry.text())?.slot).collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or(u32::MAX)
    }

    /// The number of permits that somebody uses.
    fn limit(&self) -> Option<u32> {
        self.count.as_ref().map(|count| count.limit).filter(|_| !self.living.is_empty())
    }

    /// The operation that takes a session out of the count; without holders the count goes, if it is ours alone.
    pub(crate) fn without<'a>(&self, name: &'a Name, session: &str, keeps_count: bool) -> Option<Op<'a>> {
        let limit = self.count.as_ref()?.limit;
        let count = self.with(limit, None, Some(session));
        Some(if count.holders.is_empty() && !keeps_count {
            Op::delete_unchanged(&name.semaphore, self.index)
        } else {
            Op::write_unchanged(&name.semaphore, self.index, SEMAPHORE, &count.to_text())
        })
    }
}

impl Locks {
    pub(crate) async fn permit_step(
        &self,
        claim: &Claim,
        limit: u32,
        name: &Name,
        lease: &mut Option<Lease>,
    ) -> Result<Step> {
        let seen = kv::read_all(&self.http, &name.below, None).await;
        let Seen { found, index } = seen.map_err(|error| unsent(error, lease.as_ref()))?;
        let permits = Permits::of(name, &found);
        if let Some(counter) = &permits.counter {
            check_flags(counter, SEMAPHORE)?;
            if permits.count.is_none() {
                let text = "the count of permits in Consul cannot be read: delete the key";
                return Err(Error::new(ErrorKind::CorruptState, text).with_key(&counter.key));
            }
        }
        if permits.limit().is_some_and(|other| other != limit) {
            return Err(other_mode(&claim.key));
        }
        let ours = lease.as_ref().and_then(|lease| permits.living.get(&lease.session));
        if let Some(entry) = ours {
            let slot = Stamp::read(&entry.text()).and_then(|stamp| stamp.slot);
            let lives = self.session(claim, lease, true).await?.is_some();
            return Ok(if lives { Step::Won { token: entry.modify_index, slot } } else { Step::Again });
        }
        if permits.living.len() >= limit as usize {
            // The first one that has a note: another tool's has none.
            let stamps =
                permits.living.values().filter_map(|entry| Some((entry.modify_index, Stamp::read(&entry.text())?)));
            let by = stamps.min_by_key(|(index, _)| *index).map(|(_, stamp)| stamp.note);
            return Ok(Step::Held { awaited: Awaited::Permits(name.clone(), limit), index, by });
        }
        self.take_permit(claim, limit, name, &permits, lease).await
    }

    async fn take_permit(
        &self,
        claim: &Claim,
        limit: u32,
        name: &Name,
        permits: &Permits,
        lease: &mut Option<Lease>,
    ) -> Result<Step> {
        let Some(session) = self.session(claim, lease, false).await? else { return Ok(Step::Again) };
        let slot = permits.lowest_free_slot();
        let (key, stamp) = (name.permit(&session), Stamp::of(claim, Some(slot)).to_text());
        let count = permits.with(limit, Some(&session), None).to_text();
        let mut lock_index = 0;
        loop {
            let ops = [
                Op::lock(&key, &session, SEMAPHORE, &stamp),
                Op::write_unchanged(&name.semaphore, permits.index, SEMAPHORE, &count),
                Op::unchanged(&name.lock, lock_index),
            ];
            let failures = match txn::run(&self.http, &ops).await? {
                Outcome::Done(entries) => {
                    let token = entries.first().map(|entry| entry.modify_index);
                    let token =
                        token.ok_or_else(|| Error::new(ErrorKind::Protocol, "a grant does not tell its key"))?;
                    return Ok(Step::Won { token, slot: Some(slot) });
                }
                Outcome::Refused(failures) => failures,
            };
            if failures.iter().any(Failure::is_dead_session) {
                *lease = None;
            }
            let only_the_lock = matches!(&failures[..], [only] if only.op_index == 2);
            if !only_the_lock || lock_index != 0 {
                return Ok(Step::Again);
            }
            // Another tool leaves its lock's key when it frees it.
            let Some(entry) = kv::read(&self.http, &name.lock, None).await?.found else { return Ok(Step::Again) };
            if entry.session.is_some() {
                return Err(other_mode(&claim.key));
            }
            lock_index = entry.modify_index;
        }
    }
}

fn other_mode(key: &LockKey) -> Error {
    let text = "the key is held in another mode, or with another number of permits";
    Error::new(ErrorKind::KeyConflict, text).with_key(key.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_below_the_name_of_another_lock_are_not_counted() {
        let name = Name { lock: "pool".into(), semaphore: "pool/.lock".into(), below: "pool/".into() };
        // In the order of a read. The first two are the permits of `pool/-a`, and the last one is a lock `pool/b/.lock`.
        let read = r#"[
            {"Key":"pool/-a/.lock","Flags":1,"Value":"eyJMaW1pdCI6MSwiSG9sZGVycyI6eyJzIjp0cnVlfX0=","ModifyIndex":5},
            {"Key":"pool/-a/s","Flags":1,"Value":null,"Session":"s","ModifyIndex":5},
            {"Key":"pool/.lock","Flags":1,"Value":"eyJMaW1pdCI6MiwiSG9sZGVycyI6eyJzIjp0cnVlfX0=","ModifyIndex":7},
            {"Key":"pool/s","Flags":1,"Value":null,"Session":"s","ModifyIndex":7},
            {"Key":"pool/b/.lock","Flags":2,"Value":null,"Session":"t","ModifyIndex":9}]"#;
        let entries: Vec<Entry> = serde_json::from_str(read).unwrap();
        let permits = Permits::of(&name, &entries);
        assert_eq!((permits.index, permits.limit(), permits.living["s"].key.as_str()), (7, Some(2), "pool/s"));
        let only_deeper = Permits::of(&name, &[entries[0].clone(), entries[1].clone(), entries[4].clone()]);
        assert!(only_deeper.counter.is_none() && only_deeper.index == 0 && only_deeper.living.is_empty());
    }
}
