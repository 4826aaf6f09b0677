//! The model of a store: one table of locks, its own clock, and the lies that a store may tell.

mod failover;
mod line;
mod periods;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dlock_contract::Mode;
use tokio::sync::oneshot;

use self::failover::Copied;
pub(crate) use self::line::Pushed;
use self::line::Queued;
use self::periods::Start;
pub(crate) use self::sessions::Ended;
use self::sessions::Sessions;
use crate::history::Period;
use crate::plan::{Lie, Lives};

pub(crate) type OwnerBytes = [u8; 16];

/// The hold of a request.
#[derive(Clone, Copy)]
pub(crate) struct HoldOf {
    pub(crate) key: u32,
    pub(crate) process: u32,
    pub(crate) owner: OwnerBytes,
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    pub(crate) mode: Mode,
    pub(crate) once_per: Option<Period>,
    /// The number of the call, for people who read the history, and for the order of its keys.
    pub(crate) call: u32,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) lie: Lie,
    locks: BTreeMap<u32, Lock>,
    sessions: Sessions,
    /// The number of the last request of an owner that ended its claim. What was sent before it takes nothing any more.
    over: BTreeMap<OwnerBytes, u64>,
    /// The owners whose bodies' work is final.
    settled: BTreeSet<OwnerBytes>,
    pub(crate) highest_token: u64,
    pub(crate) down_until: u64,
    /// Until then it grants nothing.
    pub(crate) guard_until: u64,
    grants: u64,
    /// The locks, as another server has heard of them.
    copied: BTreeMap<u32, Copied>,
}

#[derive(Default)]
struct Lock {
    holders: Vec<Holder>,
    last_token: u64,
    listeners: Vec<oneshot::Sender<()>>,
    /// The first one gets the lock when it is free.
    queue: VecDeque<Queued>,
    /// The last run of a period.
    start: Option<Start>,
}

#[derive(Clone)]
struct Holder {
    owner: OwnerBytes,
    token: u64,
    mode: Mode,
    call: u32,
    slot: u32,
    expires: u64,
    /// The session in which it lives. Then it ends with that, and at no time of its own.
    session: Option<u64>,
}

/// One grant.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) session: Option<u64>,
    pub(crate) slot: u32,
}

impl Holder {
    fn grant(&self) -> Grant {
        Grant { token: self.token, session: self.session, slot: self.slot }
    }
}

pub(crate) enum Taken {
    Granted(Grant),
    /// The lock is used in a mode that does not mix with this one.
    Mixed,
    Contended {
        lease_left: Duration,
    },
    Guarded {
        left: Duration,
    },
    /// The run of its period was started already.
    AlreadyRun,
    /// The claim has been given up meanwhile.
    Over,
}

/// The answer to a reservation.
#[derive(Clone, Copy)]
pub(crate) enum Reserve {
    Tokens(u64),
    Awaited,
    Lost,
}

impl Store {
    pub(crate) fn new(lie: Lie, lives: Lives) -> Self {
        Self { lie, sessions: Sessions::new(lives), ..Self::default() }
    }

    /// The lock without what has ended by now.
    fn lock(&mut self, key: u32, now: u64) -> (&mut Lock, &mut Sessions) {
        let Self { locks, sessions, .. } = self;
        let lock = locks.entry(key).or_default();
        lock.holders.retain(|holder| sessions.end_of(holder) > now);
        lock.queue.retain(|queued| queued.ends > now);
        (lock, sessions)
    }

    /// `sent` is the number of the request.
    pub(crate) fn acquire(&mut self, hold: HoldOf, sent: u64, now: u64) -> Taken {
        let lie = self.lie;
        if lie != Lie::LateGrant && self.over.get(&hold.owner).is_some_and(|over| sent < *over) {
            return Taken::Over;
        }
        if now < self.guard_until {
            return Taken::Guarded { left: Duration::from_nanos(self.guard_until - now) };
        }
        self.grants += 1;
        let blind = lie == Lie::GrantTakesAll && self.grants.is_multiple_of(5);
        let (lock, sessions) = self.lock(hold.key, now);
        if let Some(holder) = lock.of(hold.owner) {
            holder.expires = after(now, lease(lie, hold));
            sessions.prolong(holder.session, after(now, hold.ttl));
            return Taken::Granted(holder.grant());
        }
        if !lock.mixes_with(hold.mode) {
            return Taken::Mixed;
        }
        if lock.has_run(lie, hold, now) {
            return Taken::AlreadyRun;
        }
        // Others have waited for longer.
        let is_next = lock.queue.front().is_none_or(|first| first.hold.owner == hold.owner);
        if (is_next && lock.admits(lie, hold.mode)) || blind {
            return Taken::Granted(self.grant(hold, now));
        }
        let ends = lock.holders.iter().map(|holder| sessions.end_of(holder)).min();
        Taken::Contended { lease_left: Duration::from_nanos(ends.map_or(0, |ends| ends.saturating_sub(now))) }
    }

    /// Asks for several locks, all or none.
    pub(crate) fn acquire_all(&mut self, holds: &[HoldOf], sent: u64, now: u64) -> Option<Vec<Grant>> {
        let lie = self.lie;
        let is_free = |hold: &&HoldOf| {
            let is_over = self.over.get(&hold.owner).is_some_and(|over| sent < *over);
            let guarded = now < self.guard_until;
            let (lock, _) = self.lock(hold.key, now);
            let is_own = lock.of(hold.owner).is_some();
            !is_over && !guarded && (is_own || (lock.queue.is_empty() && lock.admits(lie, hold.mode)))
        };
        let free = holds.iter().filter(is_free).count();
        if free < holds.len() && (lie != Lie::HalfOfAll || free == 0) {
            return None;
        }
        let granted = |taken| if let Taken::Granted(grant) = taken { Some(grant) } else { None };
        // All of them, also if it lies.
        let grants: Vec<_> = holds.iter().map(|hold| granted(self.acquire(*hold, sent, now))).collect();
        grants.into_iter().collect()
    }

    /// Gives the lock to a claim.
    fn grant(&mut self, hold: HoldOf, now: u64) -> Grant {
        let (lie, highest) = (self.lie, self.highest_token);
        let (lock, sessions) = self.lock(hold.key, now);
        let token = if lie == Lie::SameToken { highest.max(1) } else { (lock.last_token + 1).max(now / 1000) };
        let session = sessions.of(hold, now, after(now, hold.ttl));
        let slot = if lie == Lie::SlotByCount { lock.holders.len() as u32 } else { lock.lowest_slot() };
        lock.last_token = token;
        let expires = after(now, lease(lie, hold));
        let holder = Holder { owner: hold.owner, token, mode: hold.mode, call: hold.call, slot, expires, session };
        let grant = holder.grant();
        if lie == Lie::GrantTakesAll && !hold.mode.is_shared() {
            lock.holders.clear();
        }
        lock.holders.push(holder);
        lock.starts(hold, now);
        lock.queue.retain(|queued| queued.hold.owner != hold.owner);
        self.highest_token = highest.max(token);
        grant
    }

    /// Whether it is prolonged.
    pub(crate) fn renew(&mut self, hold: HoldOf, now: u64) -> bool {
        let lie = self.lie;
        let (lock, sessions) = self.lock(hold.key, now);
        let expires = after(now, if lie == Lie::ShortRenewal { hold.ttl / 4 * 3 } else { hold.ttl });
        let takes_all = lie == Lie::RenewTakesAll && !lock.holders.is_empty();
        if let Some(holder) = lock.of(hold.owner) {
            holder.expires = expires;
            sessions.prolong(holder.session, expires);
            return true;
        }
        if lie == Lie::RenewCreates && lock.holders.is_empty() {
            let session = sessions.of(hold, now, expires);
            let HoldOf { owner, token, mode, call, .. } = hold;
            lock.holders.push(Holder { owner, token, mode, call, slot: 0, expires, session });
            return true;
        }
        takes_all
    }

    /// Whether this owner has the lock.
    pub(crate) fn is_of(&mut self, hold: HoldOf, now: u64) -> bool {
        self.lock(hold.key, now).0.of(hold.owner).is_some()
    }

    /// Whether it has a hold with this token.
    pub(crate) fn has(&mut self, key: u32, token: u64, now: u64) -> bool {
        self.lock(key, now).0.holders.iter().any(|holder| holder.token == token && holder.owner != KEPT)
    }

    /// Whether it has a hold of this call.
    pub(crate) fn has_call(&mut self, call: u32, now: u64) -> bool {
        let is_of = |holder: &Holder| holder.call == call && holder.owner != KEPT;
        self.keys().into_iter().any(|key| self.lock(key, now).0.holders.iter().any(is_of))
    }

    /// Frees the lock if it is this owner's. Returns whether it was, and who listens.
    pub(crate) fn release(&mut self, hold: HoldOf, sent: u64, now: u64) -> (bool, Vec<oneshot::Sender<()>>) {
        self.ends(hold, sent);
        let is_owner = self.is_of(hold, now);
        let frees = is_owner || self.lie == Lie::ReleaseTakesAll;
        (is_owner, if frees { self.free(hold) } else { Vec::new() })
    }

    pub(crate) fn free(&mut self, hold: HoldOf) -> Vec<oneshot::Sender<()>> {
        let all = matches!(self.lie, Lie::ReleaseTakesAll | Lie::ReleaseWithGap);
        let Some(lock) = self.locks.get_mut(&hold.key) else { return Vec::new() };
        lock.holders.retain(|holder| holder.owner != hold.owner && !all);
        std::mem::take(&mut lock.listeners)
    }

    pub(crate) fn abandon(&mut self, hold: HoldOf, sent: u64, now: u64) -> Vec<oneshot::Sender<()>> {
        if self.lie == Lie::IgnoresAbandon {
            return Vec::new();
        }
        self.ends(hold, sent);
        self.lock(hold.key, now).0.gives_start_back(hold);
        if self.is_of(hold, now) { self.free(hold) } else { Vec::new() }
    }

    /// The claim of a hold is over, and its place in the queue.
    fn ends(&mut self, hold: HoldOf, sent: u64) {
        let over = self.over.entry(hold.owner).or_default();
        *over = sent.max(*over);
        if let Some(lock) = self.locks.get_mut(&hold.key) {
            lock.queue.retain(|queued| queued.hold.owner != hold.owner);
        }
    }

    /// Makes the work of a hold's body final, which ends the hold. `None`: nothing of the work stays.
    pub(crate) fn settle(&mut self, hold: HoldOf, now: u64) -> Option<Vec<oneshot::Sender<()>>> {
        if self.settled.contains(&hold.owner) {
            // The request has come twice.
            return Some(Vec::new());
        }
        // The work was done in one transaction, and an owner that was granted again since has another one.
        if !self.is_of(hold, now) || !self.has(hold.key, hold.token, now) {
            return None;
        }
        self.settled.insert(hold.owner);
        Some(self.free(hold))
    }

    /// Reserves tokens for a hold, and prolongs it. `None`: others wait, or it is not its owner's.
    pub(crate) fn reserve(&mut self, hold: HoldOf, tokens: u64, even_if_awaited: bool, now: u64) -> Reserve {
        if !self.renew(hold, now) {
            return Reserve::Lost;
        }
        let (lock, _) = self.lock(hold.key, now);
        if !even_if_awaited && !lock.queue.is_empty() {
            return Reserve::Awaited;
        }
        let first = lock.last_token + 1;
        lock.last_token += tokens;
        self.highest_token = self.highest_token.max(first + tokens - 1);
        Reserve::Tokens(first)
    }

    pub(crate) fn listen(&mut self, key: u32) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.locks.entry(key).or_default().listeners.push(sender);
        receiver
    }

    /// The server ends and starts again. Returns the sessions that end with it, with their processes.
    pub(crate) fn restart(&mut self, forgets: bool) -> Vec<(u32, u64)> {
        for lock in self.locks.values_mut() {
            lock.listeners.clear();
            lock.queue.clear();
            if forgets {
                lock.holders.clear();
                (lock.last_token, lock.start) = (0, None);
            }
        }
        self.sessions.that_end_with_the_server(forgets)
    }

    pub(crate) fn keys(&self) -> Vec<u32> {
        self.locks.keys().copied().collect()
    }

    /// The locks that are held, and not only kept for a time.
    pub(crate) fn held(&mut self, now: u64) -> Vec<u32> {
        self.keys()
            .into_iter()
            .filter(|key| self.lock(*key, now).0.holders.iter().any(|holder| holder.owner != KEPT))
            .collect()
    }
}

impl Lock {
    fn of(&mut self, owner: OwnerBytes) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.owner == owner)
    }

    fn mixes_with(&self, mode: Mode) -> bool {
        let queued = self.queue.iter().map(|queued| queued.hold.mode);
        self.holders.iter().map(|holder| holder.mode).chain(queued).all(|other| other.mixes_with(mode))
    }

    /// Whether its holders leave room for one more.
    fn admits(&self, lie: Lie, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive | Mode::Write => self.holders.is_empty(),
            Mode::Read => lie == Lie::ReaderBesideWriter || self.holders.iter().all(|holder| holder.mode == Mode::Read),
            Mode::Permits(limit) => self.holders.len() < limit.get() as usize,
        }
    }

    fn lowest_slot(&self) -> u32 {
        (0..).find(|slot| self.holders.iter().all(|holder| holder.slot != *slot)).unwrap_or(0)
    }
}

/// The owner of a key that is kept.
const KEPT: OwnerBytes = [0; 16];

/// The lease that a grant gets.
fn lease(lie: Lie, hold: HoldOf) -> Duration {
    if lie == Lie::ShortLease { hold.ttl / 4 * 3 } else { hold.ttl }
}

fn after(now: u64, time: Duration) -> u64 {
    now.saturating_add(nanos(time))
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
