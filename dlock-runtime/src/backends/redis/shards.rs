//! The same for a cluster: each of its servers has some of the slots, and only those wait for what it may have forgotten.
//!
//! The client opens its connections by itself, so a server is looked at before the first grant after anything has
//! happened to a connection or to the slots: who it is, and who has which slots by its word. A grant counts if nothing
//! has happened meanwhile. The client does not tell whose connection has ended; of failed requests it is known, and those
//! to one server are no reason to look at another one.
//!
//! The same server with another `run_id` was restarted, and with another history it was promoted. A slot that went away
//! from a server that has none any more was failed over, as far as can be seen; any other slot that changes its server was
//! moved there with its keys; see `arrivals`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::redis::Value;

use super::check::{evicts, text};
use super::guards::{Guards, Life, Seen, forgetful};
use super::suspicion::Suspicion;
use super::topology::slots::SLOTS;
use crate::clock::BootInstant;
use crate::error::Result;

/// The servers of one cluster, as far as this process has met them.
#[derive(Default)]
pub(super) struct Shards {
    /// The account may not look.
    blind: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// How often something has happened.
    changes: u64,
    /// The last of those that any server may be concerned by.
    of_all: u64,
    /// The last of those that were about this server alone.
    of_one: HashMap<u32, u64>,
    /// The primary of each slot, by its id; empty before the first look.
    pub(super) owners: Vec<Option<u32>>,
    /// The number that stands for an id.
    numbers: HashMap<String, u32>,
    /// Where each is, as the servers tell it.
    addresses: HashMap<u32, String>,
    pub(super) met: HashMap<u32, Met>,
    /// Slots that were moved to a server that was not looked at since.
    arrived: HashSet<u16>,
    /// What may have been forgotten in these slots.
    pub(super) suspect: HashMap<u16, Suspicion>,
}

pub(super) struct Met {
    pub(super) life: Life,
    /// [`State::changes`] before it was looked at; 0 if it was only asked beside a lock.
    pub(super) changes: u64,
    /// What it may have forgotten of what comes to it.
    pub(super) suspicion: Suspicion,
    /// It may evict locks, and so may not grant any.
    pub(super) evicts: bool,
}

/// The first and the last slot of a range, its primary, and where that is.
struct Range {
    slots: (u16, u16),
    primary: String,
    address: String,
}

/// What a server has told.
pub(super) struct View {
    ranges: Vec<Range>,
    /// The server itself.
    id: String,
    seen: Seen,
}

impl View {
    /// Reads the answers to `CLUSTER SLOTS`, `CLUSTER MYID`, and to what [`Seen`] is read from; nothing where the user may
    /// not ask.
    pub(super) fn read(answers: &[Value]) -> Option<Self> {
        let [Value::Array(slots), id, about @ ..] = answers else { return None };
        Some(Self {
            ranges: slots.iter().map(range).collect::<Option<_>>()?,
            id: text(id)?.to_owned(),
            seen: Seen::read(about)?,
        })
    }
}

/// One entry of `CLUSTER SLOTS`: first, last, primary, replicas; of a server its host, its port, its id.
fn range(entry: &Value) -> Option<Range> {
    let Value::Array(entry) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &entry[..] else { return None };
    let [host, Value::Int(port), id, ..] = &primary[..] else { return None };
    Some(Range {
        slots: (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?),
        primary: text(id)?.to_owned(),
        address: format!("{}:{port}", text(host).unwrap_or_default()),
    })
}

impl View {
    /// Is it the server of this slot, by its own word?
    pub(super) fn has(&self, slot: u16) -> bool {
        let has = |Range { slots, primary, .. }: &Range| (slots.0..=slots.1).contains(&slot) && *primary == self.id;
        self.ranges.iter().any(has)
    }
}

impl Shards {
    /// Something has happened to a connection, or to the way to a slot: whoever grants next is looked at.
    pub(super) fn changed(&self) {
        let mut state = self.state();
        state.changes += 1;
        state.of_all = state.changes;
    }

    /// A request about this slot has failed: its server is looked at before it grants.
    pub(super) fn failed(&self, slot: u16) {
        let mut state = self.state();
        state.changes += 1;
        let now = state.changes;
        match state.owner(slot) {
            Some(owner) => drop(state.of_one.insert(owner, now)),
            None => state.of_all = now,
        }
    }

    /// Is the slot's server there, as far as was told?
    pub(super) fn is_at(&self, slot: u16, address: &str) -> bool {
        let state = self.state();
        state.owner(slot).and_then(|owner| state.addresses.get(&owner)).is_some_and(|known| known == address)
    }

    /// To be read before a look begins.
    pub(super) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// The account may not ask what a look asks.
    pub(super) fn cannot_look(&self) {
        if !self.blind.swap(true, Ordering::Relaxed) {
            tracing::warn!("the Redis user may not ask for the cluster's servers; a restart or a failover is not seen");
        }
    }

    /// Was the server of this slot looked at since something has happened last?
    pub(super) fn knows(&self, slot: u16) -> bool {
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
    pub(super) fn unmet(&self) -> Vec<u16> {
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
    pub(super) fn met(&self, guards: &Guards, view: View, changes: u64, now: BootInstant) {
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
        forgotten.extend(failed_over.into_iter().map(|slot| (slot, guards.after_failover(now))));
        let number = state.number(id);
        let own = state.slots_of(number);
        // A server without slots grants nothing, and a replica's life is no matter.
        if !own.is_empty() {
            let arrived: Vec<u16> = own.iter().copied().filter(|slot| state.arrived.remove(slot)).collect();
            let (found, lately) = state.live(guards, number, seen, now, !arrived.is_empty());
            if let Some(met) = state.met.get_mut(&number) {
                met.changes = changes;
            }
            forgotten.extend(own.iter().map(|slot| (*slot, found)));
            forgotten.extend(arrived.iter().map(|slot| (*slot, lately)));
        }
        state.suspect(guards, forgotten, now);
    }

    /// # Errors
    /// While a lock in this slot that looks free may be somebody's; on a server that may evict locks.
    pub(super) fn check(&self, guards: &Guards, slot: u16, now: impl FnOnce() -> BootInstant) -> Result<()> {
        let state = self.state();
        if state.owner(slot).and_then(|owner| state.met.get(&owner)).is_some_and(|met| met.evicts) {
            return Err(evicts());
        }
        let Some(until) = state.suspect.get(&slot).and_then(|suspicion| guards.until(*suspicion)) else {
            return Ok(());
        };
        let left = until.since(now());
        if left.is_zero() { Ok(()) } else { Err(forgetful(left)) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn owner(&self, slot: u16) -> Option<u32> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    pub(super) fn number(&mut self, id: String) -> u32 {
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
pub(super) mod tests {
    use super::super::guards::History;
    use super::super::settings::{Guard, Settings};
    use super::*;
    use crate::clock::Clock;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    pub(in super::super) struct Cluster {
        pub(in super::super) clock: Clock,
        pub(in super::super) guards: Guards,
    }

    impl Cluster {
        pub(in super::super) fn new() -> Self {
            let guards = Guards::new(&Settings { restart_guard: Guard::Auto, ..Settings::default() });
            guards.asks_for(SECOND * 7);
            let clock = Clock::manual();
            clock.advance(SECOND * 1000);
            Self { clock, guards }
        }

        /// A server tells who has which slots, up to and with the last of each.
        pub(in super::super) fn tells(
            &self,
            ranges: &[(u16, &str)],
            id: &str,
            run_id: &str,
            uptime: u64,
            durable: bool,
        ) {
            self.tells_as(ranges, id, Self::seen(run_id, uptime, durable));
        }

        fn seen(run_id: &str, uptime: u64, durable: bool) -> Seen {
            let uptime = Duration::from_secs(uptime);
            Seen { run_id: run_id.into(), uptime, durable, history: Self::history(run_id, false), evicts: None }
        }

        fn history(name: &str, is_heir: bool) -> History {
            History { name: name.into(), is_heir, is_primary: true }
        }

        fn tells_as(&self, ranges: &[(u16, &str)], id: &str, seen: Seen) {
            let mut first = 0;
            let ranges = ranges.iter().map(|(last, primary)| {
                let slots = (first, *last);
                first = last + 1;
                Range { slots, primary: (*primary).to_owned(), address: format!("{primary}:6379") }
            });
            let view = View { ranges: ranges.collect(), id: id.into(), seen };
            let shards = &self.guards.shards;
            shards.met(&self.guards, view, shards.changes(), self.clock.now());
        }

        pub(in super::super) fn grants(&self, slot: u16) -> bool {
            self.guards.shards.check(&self.guards, slot, || self.clock.now()).is_ok()
        }
    }

    #[test]
    fn a_restarted_server_keeps_its_own_slots_back() {
        let cluster = Cluster::new();
        let ranges = [(8191, "a"), (16_383, "b")];
        cluster.tells(&ranges, "a", "1", 500, false);
        cluster.tells(&ranges, "b", "1", 500, false);
        cluster.tells(&ranges, "a", "2", 3, false);
        assert!(!cluster.grants(0) && !cluster.grants(8191) && cluster.grants(8192));
        cluster.clock.advance(SECOND * 4);
        assert!(!cluster.grants(0), "its start may have been six seconds ago");
        cluster.clock.advance(SECOND);
        assert!(cluster.grants(0), "its start was seven seconds ago");
        cluster.tells(&ranges, "a", "3", 0, true);
        assert!(cluster.grants(0), "all of it was on disk");
    }

    #[test]
    fn the_request_at_hand_counts_for_the_length_of_the_guard() {
        let cluster = Cluster::new();
        let ranges = [(8191, "a"), (16_383, "b")];
        cluster.tells(&ranges, "a", "1", 500, false);
        cluster.tells(&ranges, "b", "1", 500, false);
        cluster.tells(&ranges, "a", "2", 1, false);
        cluster.clock.advance(SECOND * 8);
        assert!(cluster.grants(0));
        // As a look that finds nothing new.
        cluster.tells(&ranges, "b", "1", 508, false);
        cluster.guards.asks_for(SECOND * 12);
        assert!(!cluster.grants(0) && cluster.grants(8192));
        cluster.clock.advance(SECOND * 4);
        assert!(cluster.grants(0));
    }

    #[test]
    fn slots_that_fail_over_wait_and_slots_that_are_moved_do_not() {
        let cluster = Cluster::new();
        cluster.tells(&[(99, "a"), (199, "b"), (16_383, "c")], "a", "1", 500, false);
        // From a to b, of which both live on.
        cluster.tells(&[(49, "a"), (199, "b"), (16_383, "c")], "a", "1", 500, false);
        assert!(cluster.grants(60));
        // The last of a, to one that had slots before: it may have been moved, or given away after a's end.
        cluster.tells(&[(199, "b"), (16_383, "c")], "b", "1", 500, false);
        assert!(!cluster.grants(0) && cluster.grants(60));
        cluster.clock.advance(SECOND * 7);
        assert!(cluster.grants(0));
        // A replica in the place of b.
        cluster.tells(&[(199, "r"), (16_383, "c")], "r", "1", 500, true);
        assert!(!cluster.grants(0) && !cluster.grants(199) && cluster.grants(200));
        cluster.clock.advance(SECOND * 7);
        assert!(cluster.grants(0));
    }

    #[test]
    fn a_server_that_was_a_replica_meanwhile_keeps_its_slots_back() {
        let cluster = Cluster::new();
        let ranges = [(8191, "a"), (16_383, "b")];
        cluster.tells(&ranges, "a", "1", 500, true);
        cluster.tells_as(&ranges, "a", Seen { history: Cluster::history("2", true), ..Cluster::seen("1", 500, true) });
        assert!(!cluster.grants(0) && cluster.grants(8192));
        cluster.clock.advance(SECOND * 7);
        assert!(cluster.grants(0));
    }

    #[test]
    fn a_server_is_looked_at_after_every_change() {
        let cluster = Cluster::new();
        let shards = &cluster.guards.shards;
        let ranges = [(8191, "a"), (16_383, "b")];
        assert!(!shards.knows(0));
        cluster.tells(&ranges, "a", "1", 500, false);
        assert!(shards.knows(0) && !shards.knows(9000));
        assert_eq!(shards.unmet(), [8192]);
        shards.changed();
        assert!(!shards.knows(0));
        cluster.tells(&ranges, "a", "1", 500, false);
        assert!(shards.knows(0));
        shards.cannot_look();
        assert!(shards.knows(9000));
    }

    #[test]
    fn a_failed_request_is_about_its_server_alone() {
        let cluster = Cluster::new();
        let shards = &cluster.guards.shards;
        let ranges = [(8191, "a"), (16_383, "b")];
        cluster.tells(&ranges, "a", "1", 500, false);
        cluster.tells(&ranges, "b", "1", 500, false);
        assert!(shards.is_at(9000, "b:6379") && !shards.is_at(9000, "a:6379"));
        shards.failed(9000);
        assert!(shards.knows(0) && !shards.knows(9000) && !shards.knows(16_383));
        // What fails during a look makes that look count for nothing.
        let before = shards.changes();
        shards.failed(9001);
        let seen = Cluster::seen("1", 500, false);
        let view = View { ranges: Vec::new(), id: "b".into(), seen };
        shards.met(&cluster.guards, view, before, cluster.clock.now());
        assert!(!shards.knows(9000));
        cluster.tells(&ranges, "b", "1", 500, false);
        assert!(shards.knows(0) && shards.knows(9000));
        shards.changed();
        assert!(!shards.knows(0) && !shards.knows(9000));
    }
}
