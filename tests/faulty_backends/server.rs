//! The reference store: what a server does. Correct, but for the one lie that it may be told to tell.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock::conformance::Outage;
use dlock::{BootInstant, Claim, Clock, Expiry, LockKey, Owner, Stand, WakeStyle};
use tokio::sync::oneshot;

use crate::lies::Lie;

/// Which kind of store it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) expiry: Expiry,
    pub(crate) wake: WakeStyle,
    pub(crate) grouped: bool,
}

pub(crate) struct Server {
    pub(crate) setup: Setup,
    lie: Option<Lie>,
    pub(crate) clients: AtomicU64,
    state: Mutex<State>,
    outage: Mutex<Option<Outage>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) locks: HashMap<String, Record>,
    lines: HashMap<String, VecDeque<Place>>,
    /// Outlives the locks that it counts.
    fences: HashMap<String, u64>,
    /// What lies leave behind; it has no effect.
    traces: Vec<(String, String)>,
    /// For lies: the client whose release was the last change of a key, and the latest note of it.
    released_by: HashMap<String, u64>,
    notes: HashMap<String, String>,
}

pub(crate) struct Record {
    pub(crate) owner: Owner,
    pub(crate) note: String,
    pub(crate) token: u64,
    pub(crate) client: u64,
    until: BootInstant,
    since: u64,
    depth: u32,
    pushed: bool,
}

/// A place in line. It ends with the wait that it was taken for.
struct Place {
    claim: Arc<Claim>,
    client: u64,
    until: BootInstant,
    news: Option<oneshot::Sender<News>>,
}

pub(crate) enum News {
    Ask,
    Granted { token: u64, at: BootInstant },
}

pub(crate) enum Answer {
    Granted(u64),
    Refused { left: Duration, ask_by: BootInstant, news: Option<oneshot::Receiver<News>> },
}

impl Server {
    pub(crate) fn new(setup: Setup, lie: Option<Lie>) -> Arc<Self> {
        Arc::new(Self { setup, lie, clients: AtomicU64::new(0), state: Mutex::default(), outage: Mutex::new(None) })
    }

    pub(crate) fn tells(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
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

    fn in_line(&self) -> bool {
        !matches!(self.setup.wake, WakeStyle::Poll { .. })
    }

    /// The name under which a key is stored: the key, in full.
    pub(crate) fn name(&self, key: &LockKey) -> String {
        let name = key.as_str();
        match self.lie {
            Some(Lie::FoldsCase) => name.to_ascii_lowercase(),
            Some(Lie::TrimsBlanks) => name.trim_end_matches("%20").to_owned(),
            Some(Lie::CutsKeys) => name.chars().take(200).collect(),
            Some(Lie::MixesSeparators) => name.replace('/', ":"),
            _ => name.to_owned(),
        }
    }

    pub(crate) fn ask(&self, claim: &Arc<Claim>, stand: Stand, client: u64, wall: u64) -> Answer {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        self.tidy(&mut state, &name, now);
        if let Some(record) = state.locks.get_mut(&name) {
            let same_note = self.tells(Lie::OwnerIsNote) && record.note == claim.note.as_str();
            if record.owner == claim.owner || same_note {
                // The reply to an earlier attempt was lost.
                if !self.tells(Lie::ArmsNothing) {
                    record.until = now.after(self.stored(claim.ttl));
                }
                record.depth += u32::from(self.tells(Lie::CountsUp));
                record.token -= u64::from(self.tells(Lie::LowersToken)).min(record.token - 1);
                return Answer::Granted(record.token);
            }
        } else {
            let head = state.lines.get_mut(&name).and_then(|line| self.head(line));
            if head.is_none_or(|head| head.claim.owner == claim.owner) {
                self.leave(&mut state, &name, &claim.owner);
                return Answer::Granted(self.grant(&mut state, &name, claim, client, now));
            }
        }
        self.refuse(&mut state, &name, claim, stand, client, now)
    }

    fn refuse(
        &self,
        state: &mut State,
        name: &str,
        claim: &Arc<Claim>,
        stand: Stand,
        client: u64,
        now: BootInstant,
    ) -> Answer {
        let line = state.lines.entry(name.to_owned()).or_default();
        // Free, but somebody was told to come in: its place ends with its wait at the latest.
        let ask_by =
            state.locks.get(name).map_or_else(|| line.front().map_or(now, |first| first.until), |record| record.until);
        let mut news = None;
        match stand {
            Stand::Until(until) if self.in_line() => {
                let (sender, receiver) = oneshot::channel();
                news = Some(receiver);
                match line.iter_mut().find(|place| place.claim.owner == claim.owner) {
                    Some(place) => place.news = Some(sender),
                    None => {
                        let until = if self.tells(Lie::DeadWaiterStays) { BootInstant::NEVER } else { until };
                        line.push_back(Place { claim: claim.clone(), client, until, news: Some(sender) });
                    }
                }
            }
            Stand::No if self.tells(Lie::LeavesPlace) => {
                state.traces.push((name.to_owned(), "an attempt".into()));
            }
            _ => {}
        }
        Answer::Refused { left: ask_by.since(now), ask_by, news }
    }

    pub(crate) fn grant(
        &self,
        state: &mut State,
        name: &str,
        claim: &Arc<Claim>,
        client: u64,
        now: BootInstant,
    ) -> u64 {
        let raise = !(self.tells(Lie::KeepsTokenOfClient) && state.released_by.get(name) == Some(&client));
        let counted = if self.tells(Lie::BlocksPerClient) { format!("{name} {client}") } else { name.to_owned() };
        let first = if self.tells(Lie::BlocksPerClient) { client * 1000 } else { 0 };
        let fence = state.fences.entry(counted).or_insert(first);
        *fence += u64::from(raise || *fence == first);
        let token = *fence;
        let ttl = self.stored(claim.ttl);
        let ttl = if self.tells(Lie::ShortLease) { ttl.mul_f64(0.75) } else { ttl };
        let note: String = claim.note.as_str().to_owned();
        state.notes.insert(name.to_owned(), note.clone());
        state.released_by.remove(name);
        let record = Record {
            owner: claim.owner,
            note,
            token,
            client,
            until: now.after(ttl),
            since: Clock::system().now().as_nanos(),
            depth: 1,
            pushed: false,
        };
        state.locks.insert(name.to_owned(), record);
        token
    }

    /// Is the lock still this owner's, and until when?
    pub(crate) fn renew(&self, claim: &Arc<Claim>, client: u64, wall: u64, alone: bool) -> bool {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        let Some(record) = state.locks.get_mut(&name) else {
            if self.tells(Lie::RenewalCreates) && alone {
                self.grant(&mut state, &name, claim, client, now);
                return true;
            }
            return false;
        };
        if !self.same(&record.owner, &claim.owner) {
            return self.tells(Lie::RenewsNothing);
        }
        if record.until <= now && !self.tells(Lie::RenewsExpired) || record.pushed && self.tells(Lie::HandsOverOnce) {
            return false;
        }
        let ttl = self.stored(claim.ttl);
        match self.lie {
            Some(Lie::RenewsInWords) => {}
            Some(Lie::RenewedForEver) => record.until = BootInstant::NEVER,
            _ => record.until = now.after(ttl),
        }
        true
    }

    pub(crate) fn release(&self, claim: &Claim, client: u64, wall: u64) -> bool {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        let Some(record) = state.locks.get_mut(&name).filter(|record| self.same(&record.owner, &claim.owner)) else {
            if self.tells(Lie::ReleasesAnybody) && state.locks.remove(&name).is_some() {
                self.freed(&mut state, &name, now);
            }
            return self.tells(Lie::LateReleaseIsFine);
        };
        let (held, since) = (record.until > now, record.since);
        record.depth -= 1;
        if record.depth > 0 {
            return true;
        }
        state.locks.remove(&name);
        state.released_by.insert(name.clone(), client);
        if self.tells(Lie::LeavesTombstone) {
            state.traces.push((name.clone(), "a release".into()));
        }
        if self.tells(Lie::ReleaseEndsOlder) {
            state.locks.retain(|_, record| record.client != client || record.since > since);
        }
        self.freed(&mut state, &name, now);
        held && !self.tells(Lie::FreesSilently)
    }

    pub(crate) fn abandon(&self, claim: &Claim, delivered: bool, wall: u64) {
        let (name, now) = (self.name(&claim.key), self.now(wall));
        let mut state = self.state();
        let left = self.leave(&mut state, &name, &claim.owner);
        if left && self.tells(Lie::AbandonKeepsPlace) {
            state.traces.push((name.clone(), "a place".into()));
        }
        let ours = state.locks.get(&name).is_some_and(|record| {
            let kept = record.pushed && self.tells(Lie::KeepsUntaken) || delivered && self.tells(Lie::KeepsDelivered);
            self.same(&record.owner, &claim.owner) && !kept
        });
        if ours || self.tells(Lie::AbandonFreesAnybody) {
            state.locks.remove(&name);
            if self.tells(Lie::CounterAbandoned) {
                state.fences.remove(&name);
            }
            if delivered && self.tells(Lie::AbandonLeavesGhost) {
                state.traces.push((name.clone(), "a grant".into()));
            }
        }
        if left || ours {
            self.freed(&mut state, &name, now);
        }
    }

    pub(crate) fn note(&self, key: &LockKey, wall: u64) -> Option<String> {
        let (name, now) = (self.name(key), self.now(wall));
        let state = self.state();
        let record = state.locks.get(&name).filter(|record| record.until > now);
        let told = record.map(|record| match self.lie {
            Some(Lie::OwnerInNote) => format!("{} o={}", record.note, record.owner.to_hex()),
            Some(Lie::CutsNotes) => record.note.chars().take(200).collect(),
            _ => record.note.clone(),
        });
        told.or_else(|| state.notes.get(&name).filter(|_| self.tells(Lie::NoteStays)).cloned())
    }

    /// The session of a hold has ended.
    pub(crate) fn session_ended(&self, claim: &Claim) {
        if self.tells(Lie::SessionOutlives) {
            return;
        }
        let name = self.name(&claim.key);
        let mut state = self.state();
        if state.locks.get(&name).is_some_and(|record| record.owner == claim.owner) {
            state.locks.remove(&name);
            self.freed(&mut state, &name, Clock::system().now());
        }
    }

    pub(crate) fn evict(&self, key: &LockKey) {
        let name = self.name(key);
        let mut state = self.state();
        state.locks.remove(&name);
        state.released_by.remove(&name);
        if self.tells(Lie::CounterInRecord) {
            state.fences.remove(&name);
        }
        self.freed(&mut state, &name, Clock::system().now());
    }

    pub(crate) fn restart(&self) {
        let mut state = self.state();
        if self.tells(Lie::RestartForgetsTokens) {
            state.fences.clear();
        }
        if self.tells(Lie::RestartForgetsHolds) {
            state.locks.clear();
        }
    }

    pub(crate) fn leftovers(&self, key: &LockKey) -> Vec<String> {
        let (name, now) = (self.name(key), Clock::system().now());
        let state = self.state();
        let lock = state.locks.get(&name).filter(|record| record.until > now).map(|_| "the lock".to_owned());
        let places = state.lines.get(&name).into_iter().flatten().map(|_| "a place in line".to_owned());
        let traces = state.traces.iter().filter(|(key, _)| *key == name).map(|(_, text)| format!("a trace of {text}"));
        lock.into_iter().chain(places).chain(traces).collect()
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = outage;
    }

    /// Was the key's last change a release?
    pub(crate) fn was_released(&self, name: &str) -> bool {
        self.state().released_by.contains_key(name)
    }

    pub(crate) fn next_client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends what has run out.
    fn tidy(&self, state: &mut State, name: &str, now: BootInstant) {
        if let Some(line) = state.lines.get_mut(name) {
            line.retain(|place| place.until > now);
        }
        if state.locks.get(name).is_some_and(|record| record.until <= now) && !self.tells(Lie::NeverExpires) {
            state.locks.remove(name);
            state.released_by.remove(name);
            if self.tells(Lie::CounterExpires) {
                state.fences.remove(name);
            }
            self.freed(state, name, now);
        }
    }

    /// The lock is free: it goes to the first in line, or that one is told.
    fn freed(&self, state: &mut State, name: &str, now: BootInstant) {
        if state.locks.contains_key(name) || self.tells(Lie::NoNews) {
            return;
        }
        let Some(line) = state.lines.get_mut(name) else { return };
        line.retain(|place| place.until > now);
        if self.setup.wake != WakeStyle::Grant {
            if let Some(news) = self.head(line).and_then(|head| head.news.take()) {
                let _ = news.send(News::Ask);
            }
            return;
        }
        let first = if self.tells(Lie::LastInFirstOut) { line.pop_back() } else { line.pop_front() };
        if let Some(Place { claim, client, news, .. }) = first {
            let token = self.grant(state, name, &claim, client, now);
            if let Some(record) = state.locks.get_mut(name) {
                record.pushed = true;
                record.token -= u64::from(self.tells(Lie::HandsOverOldToken));
            }
            let token = token - u64::from(self.tells(Lie::HandsOverOldToken));
            let _ = news.map(|news| news.send(News::Granted { token, at: now }));
        }
    }

    fn head<'a>(&self, line: &'a mut VecDeque<Place>) -> Option<&'a mut Place> {
        if self.tells(Lie::LastInFirstOut) { line.back_mut() } else { line.front_mut() }
    }

    fn leave(&self, state: &mut State, name: &str, owner: &Owner) -> bool {
        let Some(line) = state.lines.get_mut(name) else { return false };
        let before = line.len();
        line.retain(|place| place.claim.owner != *owner);
        line.len() < before
    }

    /// The ttl as it is kept: the one that was asked for.
    pub(crate) fn stored(&self, ttl: Duration) -> Duration {
        match self.tells(Lie::RoundsUp) {
            true => Duration::from_secs(ttl.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)),
            false => ttl,
        }
    }

    fn same(&self, one: &Owner, other: &Owner) -> bool {
        let bytes = if self.tells(Lie::ComparesShort) { 0..15 } else { 0..16 };
        one.as_bytes()[bytes.clone()] == other.as_bytes()[bytes]
    }
}
