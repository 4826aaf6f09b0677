//! Permits, stored as by Consul's own semaphore: one key counts the holders, and each holder has a key of its own.

use std::collections::{BTreeMap, BTreeSet};

use dlock_contract::{Error, ErrorKind, Result};

use crate::api::kv::Entry;
use crate::api::txn::Op;
use crate::lock::name::Name;
use crate::lock::value::{HoldValue, PermitCount, SEMAPHORE};

/// The permits of a lock, as one read shows them.
pub(crate) struct Permits {
    /// The entry under the name of the count: the count, or a foreign client's lock.
    pub(crate) counter: Option<Entry>,
    /// The index at which this entry was last changed; zero if there is none.
    pub(crate) index: u64,
    /// The count, if the entry has one.
    pub(crate) count: Option<PermitCount>,
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
    pub(crate) fn with(&self, limit: u32, more: Option<&str>, less: Option<&str>) -> PermitCount {
        let stay = self.living.keys().map(String::as_str).filter(|session_id| Some(*session_id) != less);
        PermitCount { limit, holders: stay.chain(more).map(|session_id| (session_id.to_owned(), true)).collect() }
    }

    pub(crate) fn lowest_free_slot(&self) -> u32 {
        let taken: BTreeSet<u32> =
            self.living.values().filter_map(|entry| HoldValue::read(&entry.text())?.slot).collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or(u32::MAX)
    }

    /// The limit that a claim must ask for. `None`: any limit. With `keeps_count`, as for foreign clients, a count
    /// without holders keeps its limit.
    pub(crate) fn limit(&self, keeps_count: bool) -> Option<u32> {
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

pub(crate) fn other_mode(name: &Name) -> Error {
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
