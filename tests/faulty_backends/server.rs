//! The reference store: the server's side. It is correct, except for the one lie that a test may choose.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock::{Clock, HoldId, LastSuccess, LockKey, Mode};
use dlock_conformance::Outage;
use dlock_contract::{BootInstant, BreakRecord, Claim, Expiry, Owner, Queue, WakeStyle};
use tokio::sync::{oneshot, watch};

use crate::lies::Lie;
use crate::line::Place;
use crate::runs::Run;

/// Which kind of store it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) expiry: Expiry,
    pub(crate) wake: WakeStyle,
    pub(crate) grouped: bool,
    /// Can clients reach a part of it?
    pub(crate) parts: bool,
    /// Does it know more than exclusive locks that are simply freed?
    pub(crate) modes: bool,
}

pub(crate) struct Server {
    pub(crate) setup: Setup,
    lie: Option<Lie>,
    pub(crate) clients: AtomicU64,
    state: Mutex<State>,
    /// For lies: the first key of each hash.
    pub(crate) hashed: Mutex<HashMap<u16, String>>,
    outage: Mutex<Option<Outage>>,
}

#[derive(Default)]
pub(crate) struct State {
    /// The holds of each key in the order of their grants; no list is empty.
    pub(crate) locks: HashMap<String, Vec<Record>>,
    pub(crate) lines: HashMap<String, VecDeque<Place>>,
    /// Outlives the locks that it counts.
    pub(crate) fences: HashMap<String, u64>,
    /// These outlive them too.
    pub(crate) runs: HashMap<String, Run>,
    pub(crate) successes: HashMap<String, LastSuccess>,
    /// The traces that lies leave behind; they have no effect.
    pub(crate) traces: Vec<(String, String)>,
    /// For lies: the client whose release was the last change of a key, and the latest note of it.
    pub(crate) released_by: HashMap<String, u64>,
    pub(crate) notes: HashMap<String, String>,
    /// For lies: the clients that were refused a lock.
    pub(crate) refused: HashSet<u64>,
    /// For lies: the names that readers cannot get, and the owners whose runs were found to be due.
    pub(crate) barred: HashSet<String>,
    pub(crate) due: HashSet<Owner>,
    /// For lies: the client of a key's last grant, and how many it has had in a row.
    pub(crate) in_a_row: HashMap<String, (u64, u32)>,
    /// For lies: until then every lock is refused after a restart.
    pub(crate) quarantined_until: Option<BootInstant>,
    /// For lies: whether somebody has waited inside of another hold.
    pub(crate) has_nested: bool,
    /// Whether the session of an owner has ended, as its holder is told.
    pub(crate) sessions: HashMap<Owner, watch::Sender<bool>>,
    /// For lies: the owners whose sessions were ended from outside, and those that hear of an end that was none.
    pub(crate) evicted: HashSet<Owner>,
    pub(crate) neighbours: HashSet<Owner>,
    /// The owners that have worked in their holds, and those whose work is final.
    pub(crate) working: HashSet<Owner>,
    pub(crate) settled: HashSet<Owner>,
    /// The records of broken holds.
    pub(crate) broken: HashMap<HoldId, BreakRecord>,
}

pub(crate) struct Record {
    pub(crate) owner: Owner,
    /// The hold is over, and its share stays taken.
    pub(crate) kept: bool,
    pub(crate) mode: Mode,
    pub(crate) slot: Option<u32>,
    pub(crate) once: bool,
    pub(crate) note: String,
    pub(crate) token: u64,
    pub(crate) client: u64,
    pub(crate) until: BootInstant,
    pub(crate) since: u64,
    pub(crate) began_ms: u64,
    pub(crate) depth: u32,
    pub(crate) pushed: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) slot: Option<u32>,
}

pub(crate) enum News {
    Ask,
    Granted {
        grant: Grant,
        at: BootInstant,
    },
    /// The waiter would wait for what waits for it.
    GiveWay,
}

pub(crate) enum Answer {
    Granted(Grant),
    Refused { left: Duration, ask_by: BootInstant, news: Option<oneshot::Receiver<News>> },
    Conflict,
    AlreadyRun,
}

impl State {
    pub(crate) fn records(&self, name: &str) -> &[Record] {
        self.locks.get(name).map_or(&[], Vec::as_slice)
    }

    /// For lies: tells those who hold locks now that they have lost them.
    pub(crate) fn lose_neighbours(&mut self) {
        self.neighbours.extend(self.locks.values().flatten().map(|record| record.owner));
    }

    /// Ends holds of a key; tells whether there was one.
    pub(crate) fn remove(&mut self, name: &str, mut which: impl FnMut(&Record) -> bool) -> bool {
        let Some(records) = self.locks.get_mut(name) else { return false };
        let before = records.len();
        records.retain(|record| !which(record));
        let removed = records.len() < before;
        if records.is_empty() {
            self.locks.remove(name);
        }
        removed
    }
}

impl Server {
    pub(crate) fn new(setup: Setup, lie: Option<Lie>) -> Arc<Self> {
        Arc::new(Self {
            setup,
            lie,
            clients: AtomicU64::new(0),
            state: Mutex::default(),
            hashed: Mutex::default(),
            outage: Mutex::new(None),
        })
    }

    pub(crate) fn tells(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    pub(crate) fn lie(&self) -> Option<Lie> {
        self.lie
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's clock, which alone decides. `wall` is what a client believes.
    pub(crate) fn now(&self, wall: u64) -> BootInstant {
        match self.tells(Lie::TrustsClientClock) {
            true => BootInstant::from_nanos(wall * 1_000_000),
            false => Clock::system().now(),
        }
    }

    /// The name under which a key is stored: the key, in full.
    pub(crate) fn name(&self, key: &LockKey) -> String {
        let name = key.as_str();
        match self.lie {
            Some(Lie::FoldsCase) => name.to_ascii_lowercase(),
            Some(Lie::TrimsBlanks) => name.trim_end_matches("%20").to_owned(),
            Some(Lie::CutsKeys) => name.chars().take(200).collect(),
            Some(Lie::MixesSeparators) => name.replace('/', ":"),
            Some(Lie::HashesKeys) => self.first_of_its_hash(name),
            _ => name.to_owned(),
        }
    }

    pub(crate) fn ask(&self, claim: &Arc<Claim>, queue: Queue, client: u64, wall: u64) -> Answer {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        self.tidy(&mut state, &name, wall);
        if let Some(grant) = self.again(&mut state, &name, claim, now) {
            return Answer::Granted(grant);
        }
        if self.conflicts(&state, &name, claim.mode) {
            return match self.tells(Lie::ConflictWaits) && !matches!(claim.mode, Mode::Permits(_)) {
                true => self.refuse(&mut state, &name, claim, Queue::Leave, client, now),
                false => Answer::Conflict,
            };
        }
        let two_steps = self.tells(Lie::StartsInTwoSteps) && queue == Queue::Leave;
        if !two_steps && self.is_over(&mut state, claim, client, wall) {
            let held = !state.records(&name).is_empty();
            if held && self.tells(Lie::RunIsContention) && queue == Queue::Leave {
                return self.refuse(&mut state, &name, claim, queue, client, now);
            }
            self.leave(&mut state, &name, &claim.owner);
            return Answer::AlreadyRun;
        }
        let (last, holds) = state.in_a_row.get(&name).copied().unwrap_or_default();
        if self.tells(Lie::LetsClientGoOn) && queue != Queue::Leave && last != client && (3..40).contains(&holds) {
            return self.refuse(&mut state, &name, claim, queue, client, now);
        }
        let reruns = self.tells(Lie::RerunsAtOnce) && claim.once_per.as_deref().is_some_and(|once| once.rerun);
        if self.admits(&state, &name, claim.mode) && self.is_next(&mut state, &name, claim) || reruns {
            self.leave(&mut state, &name, &claim.owner);
            let grant = self.grant(&mut state, &name, claim, client, wall);
            // With a shared mode the next waiter may get the lock too.
            self.freed(&mut state, &name, wall);
            return Answer::Granted(grant);
        }
        self.refuse(&mut state, &name, claim, queue, client, now)
    }

    /// The reply to an earlier attempt was lost.
    pub(crate) fn again(&self, state: &mut State, name: &str, claim: &Arc<Claim>, now: BootInstant) -> Option<Grant> {
        if self.tells(Lie::TakesAnother) && claim.mode.is_shared() && self.admits(state, name, claim.mode) {
            return None;
        }
        let until = now.after(self.lease(claim.ttl));
        let record = state.locks.get_mut(name)?.iter_mut().find(|record| {
            let same_note = self.tells(Lie::OwnerIsNote) && record.note == claim.note.as_str();
            !record.kept && (record.owner == claim.owner || same_note)
        })?;
        if !self.tells(Lie::ArmsNothing) {
            record.until = until;
        }
        record.depth += u32::from(self.tells(Lie::CountsUp));
        record.token -= u64::from(self.tells(Lie::LowersToken)).min(record.token - 1);
        Some(Grant { token: record.token, slot: record.slot })
    }

    fn conflicts(&self, state: &State, name: &str, mode: Mode) -> bool {
        let held = state.records(name).iter().map(|record| record.mode);
        let waiting = state.lines.get(name).into_iter().flatten().map(|place| place.claim.mode);
        held.chain(waiting).any(|other| {
            let numbers = matches!((mode, other), (Mode::Permits(_), Mode::Permits(_)));
            !(mode.mixes_with(other) || numbers && self.tells(Lie::MixesNumbers))
        })
    }

    /// Whether there is room beside the current holders.
    pub(crate) fn admits(&self, state: &State, name: &str, mode: Mode) -> bool {
        let records = state.records(name);
        if self.tells(Lie::KeptAlone) && records.iter().any(|record| record.kept) {
            return false;
        }
        match mode {
            Mode::Exclusive | Mode::Write => records.is_empty(),
            Mode::Read if self.tells(Lie::FewReaders) && records.len() == 3 => false,
            Mode::Read if state.barred.contains(name) => false,
            Mode::Read => self.tells(Lie::ReaderBesideWriter) || records.iter().all(|other| other.mode == Mode::Read),
            Mode::Permits(most) => {
                let more = u32::from(self.tells(Lie::OneTooMany) && most.get() > 3);
                records.len() < (most.get() + more) as usize
            }
        }
    }

    /// Tells how the session of an owner goes on.
    pub(crate) fn listen(&self, owner: Owner) -> watch::Receiver<bool> {
        self.state().sessions.entry(owner).or_insert_with(|| watch::Sender::new(false)).subscribe()
    }

    pub(crate) fn grant(&self, state: &mut State, name: &str, claim: &Arc<Claim>, client: u64, wall: u64) -> Grant {
        let raise = !(self.tells(Lie::KeepsTokenOfClient) && state.released_by.get(name) == Some(&client));
        let counted = self.counted(name, claim, client);
        let first = if self.tells(Lie::BlocksPerClient) { client * 1000 } else { 0 };
        // For lies: a client that was refused knows that others ask, and draws from the store.
        let draws = self.tells(Lie::BlocksPerClient) && state.refused.contains(&client);
        let drawn = state.fences.values().copied().max().filter(|_| draws);
        let fence = state.fences.entry(counted).or_insert(first);
        *fence = drawn.unwrap_or(*fence);
        *fence += u64::from(raise || *fence == first);
        let token = *fence;
        let ttl = self.granted_lease(claim);
        let note: String = claim.note.as_str().to_owned();
        state.notes.insert(name.to_owned(), note.clone());
        state.released_by.remove(name);
        let (last, holds) = state.in_a_row.get(name).copied().unwrap_or_default();
        state.in_a_row.insert(name.to_owned(), (client, if last == client { holds + 1 } else { 1 }));
        let slot = match claim.mode {
            Mode::Permits(most) => self.free_slot(state.records(name), most.get()),
            _ => None,
        };
        let record = Record {
            owner: claim.owner,
            kept: false,
            mode: claim.mode,
            slot,
            once: claim.once_per.is_some(),
            note,
            token,
            client,
            until: self.now(wall).after(ttl),
            since: Clock::system().now().as_nanos(),
            began_ms: self.start(state, name, claim, client, wall),
            depth: 1,
            pushed: false,
        };
        state.locks.entry(name.to_owned()).or_default().push(record);
        self.evict_oldest(state);
        Grant { token, slot }
    }

    /// The name of the counter of tokens.
    pub(crate) fn counted(&self, name: &str, claim: &Claim, client: u64) -> String {
        match self.lie {
            Some(Lie::BlocksPerClient) => format!("{name} {client}"),
            Some(Lie::TokensPerMode) => format!("{name} {:?}", claim.mode),
            _ => name.to_owned(),
        }
    }

    fn free_slot(&self, records: &[Record], most: u32) -> Option<u32> {
        let mut free = (0..=most).filter(|slot| records.iter().all(|record| record.slot != Some(*slot)));
        match self.tells(Lie::HighestSlot) {
            true => free.take_while(|slot| *slot < most).last(),
            false => free.next(),
        }
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = outage;
    }

    pub(crate) fn next_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// The ttl as it is kept: the one that was asked for.
    pub(crate) fn stored(&self, ttl: Duration) -> Duration {
        match self.tells(Lie::RoundsUp) {
            true => Duration::from_secs(ttl.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)),
            false => ttl,
        }
    }

    pub(crate) fn same(&self, one: &Owner, other: &Owner) -> bool {
        let bytes = if self.tells(Lie::ComparesShort) { 0..15 } else { 0..16 };
        one.as_bytes()[bytes.clone()] == other.as_bytes()[bytes]
    }
}
