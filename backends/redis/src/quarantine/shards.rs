//! The quarantine of a cluster's servers. Exists because the quarantine of one server (`server`) hangs on a connection's
//! first requests, and a slot may come to another server at any time. If a server may have lost locks, only its own slots
//! wait. To hold all slots back would save ten lines, and each failover of one server would stop all
//! locks for the longest ttl (ADR 0014).
//!
//! A server is looked at before its first grant after anything has happened to a connection or to the slots: the look
//! asks for its identity and for the list of all slots' servers. A grant counts if nothing has happened meanwhile. If a
//! connection ends, all servers are looked at again. If a request fails, only its own server is.
//!
//! The same server with another `run_id` was restarted, and with another history it was promoted. If a server loses its
//! last slot, that counts as a failover. Any other slot that changes its server was moved there with its keys, and what
//! its old server may have lost concerns the new one too.
//!
//! While a slot moves, its new server grants the locks that the old server no longer has (`ASK`). So the request that asks
//! the new server for the lock also asks for its identity.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::Value;
use dlock_contract::{BootInstant, Result};
use dlock_store::line;

use crate::layout::slots::SLOTS;
use crate::quarantine::announced::Announced;
use crate::quarantine::history::{Life, QUESTIONS, ServerDescription};
use crate::quarantine::rules::{Rules, in_quarantine};
use crate::quarantine::suspicion::Suspicion;
use crate::quarantine::view::{Range, View};
use crate::reply::fault::evicts;
use crate::reply::read::text;

/// The servers of one cluster, as far as this process has met them.
#[derive(Default)]
pub(crate) struct Shards {
    /// The account may not look.
    blind: AtomicBool,
    state: Mutex<ShardsState>,
}

#[derive(Default)]
struct ShardsState {
    /// How often something has happened.
    changes: u64,
    /// The last change that any server may be concerned by.
    of_all: u64,
    servers: Vec<ShardServer>,
    /// The primary of each slot, by its place among the servers; empty before the first look.
    owners: Vec<Option<usize>>,
    /// The slots that were found to be moving, each with the server to which it moves. A move may be broken off, and begin
    /// again to another server.
    moving: BTreeSet<(u16, usize)>,
}

/// One server of the cluster, by its id.
#[derive(Default)]
struct ShardServer {
    id: String,
    /// Its address, as the servers report it.
    address: String,
    /// The last change that was about this server alone.
    failed: u64,
    /// [`ShardsState::changes`] before the last look; `None` before the first one, and when slots have come to it.
    looked: Option<u64>,
    life: Option<Life>,
    /// Whether slots were moved to it since the last look.
    gained: bool,
    /// The locks of its slots that it may have lost.
    suspicion: Suspicion,
    /// Whether it may evict locks. Then it may not grant any.
    evicts: bool,
    announced: Announced,
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
        match state.place_of(slot).and_then(|at| state.servers.get_mut(at)) {
            Some(owner) => owner.failed = now,
            None => state.of_all = now,
        }
    }

    /// To be read before a look begins.
    pub(crate) fn changes(&self) -> u64 {
        self.state().changes
    }

    /// The account may not ask what a look asks.
    pub(crate) fn cannot_look(&self) {
        if !self.blind.swap(true, Ordering::Relaxed) {
            line(|| {
                tracing::warn!(
                    "the Redis user may not ask for the cluster's servers; a restart or a failover is not seen"
                );
            });
        }
    }

    /// Whether the server of this slot was looked at since the last event.
    pub(crate) fn knows(&self, slot: u16) -> bool {
        if self.blind.load(Ordering::Relaxed) {
            return true;
        }
        let state = self.state();
        let is_current = |owner: &ShardServer| owner.looked.is_some_and(|at| at >= owner.failed.max(state.of_all));
        state.owner(slot).is_some_and(|owner| is_current(owner) && !owner.evicts)
    }

    /// One slot of each server that has slots.
    pub(crate) fn all(&self) -> Vec<u16> {
        let state = self.state();
        let mut first: HashMap<usize, u16> = HashMap::new();
        for (slot, owner) in (0..).zip(&state.owners) {
            if let Some(at) = owner {
                first.entry(*at).or_insert(slot);
            }
        }
        first.into_values().collect()
    }

    /// Notes the answers of a server; `changes` is from before the question.
    pub(crate) fn met(&self, rules: &Rules, view: View, changes: u64, now: BootInstant) {
        let View { ranges, id, seen } = view;
        let mut state = self.state();
        state.share_out(rules, ranges, now);
        let at = state.place(id);
        // A server without slots grants nothing, and a replica's life is no matter.
        if state.owners.contains(&Some(at))
            && let Some(server) = state.servers.get_mut(at)
        {
            server.live(rules, seen, now, server.gained);
            (server.looked, server.gained) = (Some(changes), false);
        }
    }

    /// The questions to the server to which a slot moves, sent beside the request for a lock of that slot.
    pub(crate) fn questions_beside() -> impl Iterator<Item = &'static [&'static str]> {
        std::iter::once(&["CLUSTER", "MYID"][..]).chain(QUESTIONS)
    }

    /// Notes the answers of the server to which the slot moves. They come from the same run of the server as the answer
    /// to the lock's request.
    pub(crate) fn asked_beside(&self, rules: &Rules, slot: u16, answers: &[Value], now: BootInstant) {
        let [id, about @ ..] = answers else { return };
        let Some((id, seen)) = text(id).zip(ServerDescription::read(about)) else { return };
        let mut state = self.state();
        let at = state.place(id.to_owned());
        if let Some(server) = state.servers.get_mut(at) {
            server.live(rules, seen, now, true);
        }
        state.moving.insert((slot, at));
    }

    /// # Errors
    /// While a lock in this slot that looks free may be somebody's; on a server that may evict locks.
    pub(crate) fn check(&self, rules: &Rules, slot: u16, now: impl FnOnce() -> BootInstant) -> Result<()> {
        let state = self.state();
        let owner = state.owner(slot);
        if owner.is_some_and(|owner| owner.evicts) {
            // An operator may correct the policy, and the next look shows it.
            return Err(evicts().with_retryable(true));
        }
        let moving = state.moving.range((slot, 0)..=(slot, usize::MAX));
        let next = moving.filter_map(|(_, at)| state.servers.get(*at));
        let suspects =
            owner.into_iter().chain(next).filter_map(|server| Some((server, rules.until(server.suspicion)?)));
        let mut suspects = suspects.peekable();
        if suspects.peek().is_none() {
            return Ok(());
        }
        let (now, mut longest) = (now(), Duration::ZERO);
        for (server, until) in suspects {
            let left = until.since(now);
            server.tell(left);
            longest = longest.max(left);
        }
        if longest.is_zero() { Ok(()) } else { Err(in_quarantine(longest)) }
    }

    fn state(&self) -> MutexGuard<'_, ShardsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardsState {
    fn place_of(&self, slot: u16) -> Option<usize> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    fn owner(&self, slot: u16) -> Option<&ShardServer> {
        self.servers.get(self.place_of(slot)?)
    }

    /// The place of this server, which may be a new one.
    fn place(&mut self, id: String) -> usize {
        let known = self.servers.iter().position(|server| server.id == id);
        known.unwrap_or_else(|| {
            self.servers.push(ShardServer { id, ..ShardServer::default() });
            self.servers.len() - 1
        })
    }

    /// Notes which server has which slots now.
    fn share_out(&mut self, rules: &Rules, ranges: Vec<Range>, now: BootInstant) {
        let before = std::mem::replace(&mut self.owners, vec![None; SLOTS]);
        for Range { slots: (first, last), primary, address: (host, port) } in ranges {
            let at = self.place(primary);
            if let Some(server) = self.servers.get_mut(at) {
                server.address = format!("{host}:{port}");
            }
            if let Some(slots) = self.owners.get_mut(usize::from(first)..=usize::from(last)) {
                slots.fill(Some(at));
            }
        }
        let mut gains = HashSet::new();
        for (owner, before) in self.owners.iter_mut().zip(before) {
            // A slot that nobody serves just now is remembered as it was.
            *owner = owner.or(before);
            gains.extend(before.zip(*owner).filter(|(old, new)| old != new));
        }
        for (old, new) in gains {
            let is_gone = !self.owners.contains(&Some(old));
            let failover = if is_gone { rules.after_failover(now) } else { Suspicion::default() };
            let inherited = self.servers.get(old).map(|server| server.suspicion).unwrap_or_default();
            if let Some(server) = self.servers.get_mut(new) {
                server.looked = None;
                server.gained |= !is_gone;
                server.suspect(rules, failover.or(inherited), now);
            }
        }
        let Self { owners, moving, .. } = self;
        moving.retain(|(slot, to)| owners.get(usize::from(*slot)) != Some(&Some(*to)));
    }
}

impl ShardServer {
    /// Notes the state of its life. If slots come to it and no process has met it before, its age decides which locks
    /// it may have lost.
    fn live(&mut self, rules: &Rules, seen: ServerDescription, now: BootInstant, gains: bool) {
        let found = match &self.life {
            None if gains => rules.after_arrival(&seen, now),
            life => rules.suspicion_of_same(life.as_ref(), &seen, now),
        };
        self.evicts = rules.refuses(&seen, self.evicts);
        self.life = Some(Life { run_id: seen.run_id, history: seen.history.name, met: now });
        self.suspect(rules, found, now);
    }

    fn suspect(&mut self, rules: &Rules, suspicion: Suspicion, now: BootInstant) {
        let found = self.suspicion.or(suspicion);
        let is_new = std::mem::replace(&mut self.suspicion, found) != found;
        if let Some(wait) = rules.until(found).map(|until| until.since(now)).filter(|wait| is_new && !wait.is_zero()) {
            self.tell(wait);
        }
    }

    /// Its guard lasts for this time, or is over.
    fn tell(&self, left: Duration) {
        if left.is_zero() {
            let text = "a server of the Redis Cluster grants locks again: those that it may have lost have ended";
            self.announced.announce_end(&self.address, text);
        } else {
            let text =
                "a server of the Redis Cluster may have lost locks; it grants none until the earlier ones have ended";
            self.announced.begins(&self.address, left, text);
        }
    }
}

#[cfg(test)]
mod tests;
