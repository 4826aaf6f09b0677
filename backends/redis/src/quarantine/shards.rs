//! The quarantine of a cluster's servers. Each server has some of the slots; if it may have lost locks, only its slots wait.
//!
//! The client opens its connections by itself, so a server is looked at before the first grant after anything has
//! happened to a connection or to the slots: the look asks for its identity and for its list of all slots' servers. A
//! grant counts if nothing has happened meanwhile. The client does not tell whose connection has ended; of failed
//! requests it is known, and those to one server are no reason to look at another one.
//!
//! The same server with another `run_id` was restarted, and with another history it was promoted. A slot that went away
//! from a server that has none any more was failed over, as far as can be seen; any other slot that changes its server was
//! moved there with its keys; see `arrivals`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlock_contract::{BootInstant, Result};

use crate::layout::slots::SLOTS;
use crate::quarantine::history::Life;
use crate::quarantine::rules::{Rules, in_quarantine};
use crate::quarantine::suspicion::Suspicion;
use crate::quarantine::view::{Range, View};
use crate::reply::fault::evicts;

/// The servers of one cluster, as far as this process has met them.
#[derive(Default)]
pub(crate) struct Shards {
    /// The account may not look.
    blind: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// How often something has happened.
    changes: u64,
    /// The last of those that any server may be concerned by.
    of_all: u64,
    /// The last of those that were about this server alone.
    of_one: HashMap<u32, u64>,
    /// The primary of each slot, by its id; empty before the first look.
    pub(crate) owners: Vec<Option<u32>>,
    /// The number that stands for an id.
    numbers: HashMap<String, u32>,
    /// The address of each server, as the servers tell it.
    addresses: HashMap<u32, String>,
    pub(crate) met: HashMap<u32, Met>,
    /// Slots that were moved to a server that was not looked at since.
    arrived: HashSet<u16>,
    /// The slots in which locks may have been forgotten.
    pub(crate) suspect: HashMap<u16, Suspicion>,
}

pub(crate) struct Met {
    pub(crate) life: Life,
    /// [`State::changes`] before it was looked at; 0 if it was only asked beside a lock.
    pub(crate) changes: u64,
    /// The suspicion that falls on slots that come to it.
    pub(crate) suspicion: Suspicion,
    /// Whether it may evict locks. Then it may not grant any.
    pub(crate) evicts: bool,
}

impl Shards {
    /// Something has happened to a connection, or to the way to a slot: each server is looked at before its next grant.
    pub(crate) fn changed(&self) {
        let mut state = self.state();
        state.changes += 1;
        state.of_all = state.changes;
    }

    /// A request about this slot has failed: its server is looked at before it grants.
    pub(crate) fn failed(&self, slot: u16) {
        let mut state = self.state();
        state.changes += 1;
        let now = state.changes;
        match state.owner(slot) {
            Some(owner) => drop(state.of_one.insert(owner, now)),
            None => state.of_all = now,
        }
    }

    /// Whether the slot's server has this address, as far as was told.
    pub(crate) fn is_at(&self, slot: u16, address: &str) -> bool {
        let state = self.state();
        state.owner(slot).and_then(|owner| state.addresses.get(&owner)).is_some_and(|known| known == address)
    }

    /// To be read before a look begins.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// The account may not ask what a look asks.
    pub(crate) fn cannot_look(&self) {
        if !self.blind.swap(true, Ordering::Relaxed) {
            tracing::warn!("the Redis user may not ask for the cluster's servers; a restart or a failover is not seen");
        }
    }

    /// Whether the server of this slot was looked at since the last event.
    pub(crate) fn knows(&self, slot: u16) -> bool {
        if self.blind.load(Ordering::Relaxed) {
            return true;
        }
        let state = self.state();
        let Some((owner, met)) = state.owner(slot).and_then(|owner| Some((owner, state.met.get(&owner)?))) else {
            return false;
        };
        let last = state.of_one.get(&owner).copied().unwrap_or_default().max(state.of_all);
        met.changes >= last && !met.evicts && !state.arrived.contains(&slot)
    }

    /// One slot of each server that was not looked at yet.
    pub(crate) fn unmet(&self) -> Vec<u16> {
        let state = self.state();
        let mut first: HashMap<u32, u16> = HashMap::new();
        for (slot, owner) in (0..).zip(&state.owners) {
            if let Some(owner) = owner.filter(|owner| !state.met.contains_key(owner)) {
                first.entry(owner).or_insert(slot);
            }
        }
        first.into_values().collect()
    }

    /// Notes what a server has told; `changes` is from before it was asked.
    pub(crate) fn met(&self, rules: &Rules, view: View, changes: u64, now: BootInstant) {
        let View { ranges, id, seen } = view;
        let mut state = self.state();
        let state = &mut *state;
        let before = std::mem::replace(&mut state.owners, vec![None; SLOTS]);
        for Range { slots: (first, last), primary, address } in ranges {
            let number = state.number(primary);
            state.addresses.insert(number, address);
            if let Some(slots) = state.owners.get_mut(usize::from(first)..=usize::from(last)) {
                slots.fill(Some(number));
            }
        }
        // A slot that nobody serves just now is remembered as it was.
        for (now, before) in state.owners.iter_mut().zip(&before) {
            *now = now.or(*before);
        }
        let (failed_over, moved) = changed(&before, &state.owners);
        state.arrived.extend(moved);
        let mut forgotten = Vec::new();
        forgotten.extend(failed_over.into_iter().map(|slot| (slot, rules.after_failover(now))));
        let number = state.number(id);
        let own = state.slots_of(number);
        // A server without slots grants nothing, and a replica's life is no matter.
        if !own.is_empty() {
            let arrived: Vec<u16> = own.iter().copied().filter(|slot| state.arrived.remove(slot)).collect();
            let (found, lately) = state.live(rules, number, seen, now, !arrived.is_empty());
            if let Some(met) = state.met.get_mut(&number) {
                met.changes = changes;
            }
            forgotten.extend(own.iter().map(|slot| (*slot, found)));
            forgotten.extend(arrived.iter().map(|slot| (*slot, lately)));
        }
        state.suspect(rules, forgotten, now);
    }

    /// # Errors
    /// While a lock in this slot that looks free may be somebody's; on a server that may evict locks.
    pub(crate) fn check(&self, rules: &Rules, slot: u16, now: impl FnOnce() -> BootInstant) -> Result<()> {
        let state = self.state();
        if state.owner(slot).and_then(|owner| state.met.get(&owner)).is_some_and(|met| met.evicts) {
            return Err(evicts());
        }
        let Some(until) = state.suspect.get(&slot).and_then(|suspicion| rules.until(*suspicion)) else {
            return Ok(());
        };
        let left = until.since(now());
        if left.is_zero() { Ok(()) } else { Err(in_quarantine(left)) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn owner(&self, slot: u16) -> Option<u32> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    pub(crate) fn number(&mut self, id: String) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(id).or_insert(next)
    }
}

/// The slots that have changed their primary: those whose old one has none any more, and all others.
fn changed(before: &[Option<u32>], now: &[Option<u32>]) -> (Vec<u16>, Vec<u16>) {
    let has_slots = |owners: &[Option<u32>], server: u32| owners.contains(&Some(server));
    let mut without_slots: HashMap<u32, bool> = HashMap::new();
    let slots = (0..).zip(before.iter().zip(now));
    let changed = slots.filter_map(|(slot, (old, new))| match (old, new) {
        (Some(old), Some(new)) if old != new => Some((slot, *old)),
        _ => None,
    });
    let (failed_over, moved): (Vec<_>, Vec<_>) =
        changed.partition(|(_, old)| *without_slots.entry(*old).or_insert_with(|| !has_slots(now, *old)));
    let slots = |changed: Vec<(u16, u32)>| changed.into_iter().map(|(slot, _)| slot).collect();
    (slots(failed_over), slots(moved))
}

#[cfg(test)]
pub(crate) mod tests;
