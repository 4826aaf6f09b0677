//! The model of a store with leases: one table, its own clock, and the lies that a store may tell.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;

/// A store that breaks a promise of the contract, as the liars of the conformance suite do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// None.
    #[default]
    Honest,
    /// A renewal creates the hold anew if the lock is free.
    RenewCreates,
    /// A renewal is written without a look at the owner.
    RenewTakesAll,
    /// A release is written without a look at the owner.
    ReleaseTakesAll,
    /// A release looks first and deletes some milliseconds later.
    ReleaseWithGap,
    /// A grant is written without a look at the holder, now and then.
    GrantTakesAll,
    /// A lease lasts three quarters of what is told.
    ShortLease,
    /// A renewal lasts three quarters of what is told.
    ShortRenewal,
    /// A request that arrives after its abandon takes the lock.
    LateGrant,
    /// The grant is said to begin when its answer comes.
    FromTheReply,
    /// A grant has the token of the one before.
    SameToken,
    /// An abandon changes nothing.
    IgnoresAbandon,
}

/// All of the lies.
pub const LIES: [Lie; 11] = [
    Lie::RenewCreates,
    Lie::RenewTakesAll,
    Lie::ReleaseTakesAll,
    Lie::ReleaseWithGap,
    Lie::GrantTakesAll,
    Lie::ShortLease,
    Lie::ShortRenewal,
    Lie::LateGrant,
    Lie::FromTheReply,
    Lie::SameToken,
    Lie::IgnoresAbandon,
];

pub(crate) type OwnerBytes = [u8; 16];

/// The hold of a request: its key, owner, token and ttl.
#[derive(Clone, Copy)]
pub(crate) struct HoldOf {
    pub(crate) key: u32,
    pub(crate) owner: OwnerBytes,
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) lie: Lie,
    locks: BTreeMap<u32, Lock>,
    /// The number of the last request of an owner that ended its claim. What was sent before it takes nothing any more.
    over: BTreeMap<OwnerBytes, u64>,
    pub(crate) highest_token: u64,
    pub(crate) down_until: u64,
    /// Until then it grants nothing.
    pub(crate) guard_until: u64,
    grants: u64,
}

#[derive(Default)]
struct Lock {
    holder: Option<Holder>,
    last_token: u64,
    listeners: Vec<oneshot::Sender<()>>,
    /// The first one gets the lock when it is free.
    queue: VecDeque<Queued>,
}

/// A claim in the queue.
struct Queued {
    hold: HoldOf,
    process: u32,
    /// Its caller does not wait for longer.
    ends: u64,
    news: oneshot::Sender<Pushed>,
}

/// A grant that the store tells by itself.
#[derive(Clone, Copy)]
pub(crate) struct Pushed {
    pub(crate) token: u64,
    /// When the store granted it.
    pub(crate) at: u64,
}

/// A grant on its way to its process.
pub(crate) type Push = (u32, oneshot::Sender<Pushed>, Pushed);

struct Holder {
    owner: OwnerBytes,
    token: u64,
    expires: u64,
}

pub(crate) enum Taken {
    Granted {
        token: u64,
    },
    Contended {
        lease_left: Duration,
    },
    Guarded {
        left: Duration,
    },
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
    pub(crate) fn new(lie: Lie) -> Self {
        Self { lie, ..Self::default() }
    }

    fn lock(&mut self, key: u32, now: u64) -> &mut Lock {
        let lock = self.locks.entry(key).or_default();
        lock.holder.take_if(|holder| holder.expires <= now);
        lock.queue.retain(|queued| queued.ends > now);
        lock
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
        let highest = self.highest_token;
        let lock = self.lock(hold.key, now);
        let expires = after(now, if lie == Lie::ShortLease { hold.ttl / 4 * 3 } else { hold.ttl });
        match &mut lock.holder {
            Some(holder) if holder.owner == hold.owner => {
                holder.expires = expires;
                Taken::Granted { token: holder.token }
            }
            // Others have waited for longer.
            None if lock.queue.front().is_some_and(|first| first.hold.owner != hold.owner) && !blind => {
                Taken::Contended { lease_left: Duration::ZERO }
            }
            Some(holder) if !blind => {
                Taken::Contended { lease_left: Duration::from_nanos(holder.expires.saturating_sub(now)) }
            }
            _ => {
                let token = if lie == Lie::SameToken { highest.max(1) } else { (lock.last_token + 1).max(now / 1000) };
                lock.last_token = token;
                lock.holder = Some(Holder { owner: hold.owner, token, expires });
                lock.queue.retain(|queued| queued.hold.owner != hold.owner);
                self.highest_token = self.highest_token.max(token);
                Taken::Granted { token }
            }
        }
    }

    /// Whether it is prolonged.
    pub(crate) fn renew(&mut self, hold: HoldOf, now: u64) -> bool {
        let lie = self.lie;
        let lock = self.lock(hold.key, now);
        let expires = after(now, if lie == Lie::ShortRenewal { hold.ttl / 4 * 3 } else { hold.ttl });
        match &mut lock.holder {
            Some(holder) if holder.owner == hold.owner || lie == Lie::RenewTakesAll => {
                holder.expires = expires;
                true
            }
            None if lie == Lie::RenewCreates => {
                lock.holder = Some(Holder { owner: hold.owner, token: hold.token, expires });
                true
            }
            _ => false,
        }
    }

    /// Whether this owner has the lock.
    pub(crate) fn is_of(&mut self, hold: HoldOf, now: u64) -> bool {
        self.lock(hold.key, now).holder.as_ref().is_some_and(|holder| holder.owner == hold.owner)
    }

    /// Frees the lock if it is this owner's. Returns whether it was, and who listens.
    pub(crate) fn release(&mut self, hold: HoldOf, sent: u64, now: u64) -> (bool, Vec<oneshot::Sender<()>>) {
        self.ends(hold.owner, sent);
        let is_owner = self.is_of(hold, now);
        (is_owner, if is_owner || self.lie == Lie::ReleaseTakesAll { self.free(hold.key) } else { Vec::new() })
    }

    pub(crate) fn free(&mut self, key: u32) -> Vec<oneshot::Sender<()>> {
        let Some(lock) = self.locks.get_mut(&key) else { return Vec::new() };
        lock.holder = None;
        std::mem::take(&mut lock.listeners)
    }

    pub(crate) fn abandon(&mut self, key: u32, owner: OwnerBytes, sent: u64, now: u64) -> Vec<oneshot::Sender<()>> {
        if self.lie == Lie::IgnoresAbandon {
            return Vec::new();
        }
        self.ends(owner, sent);
        self.lock(key, now).queue.retain(|queued| queued.hold.owner != owner);
        let holder = self.lock(key, now).holder.as_ref();
        if holder.is_some_and(|holder| holder.owner == owner) { self.free(key) } else { Vec::new() }
    }

    fn ends(&mut self, owner: OwnerBytes, sent: u64) {
        let over = self.over.entry(owner).or_default();
        *over = sent.max(*over);
    }

    /// Puts a claim into the queue, or tells its place another way to its news.
    pub(crate) fn enqueue(&mut self, hold: HoldOf, process: u32, ends: u64) -> oneshot::Receiver<Pushed> {
        let (news, receiver) = oneshot::channel();
        let queue = &mut self.locks.entry(hold.key).or_default().queue;
        match queue.iter_mut().find(|queued| queued.hold.owner == hold.owner) {
            Some(queued) => (queued.news, queued.ends) = (news, ends),
            None => queue.push_back(Queued { hold, process, ends, news }),
        }
        receiver
    }

    /// Grants a free lock to the first of its queue. Also gives the time at which to look again.
    pub(crate) fn serve(&mut self, key: u32, now: u64) -> (Option<Push>, Option<u64>) {
        let (lie, is_guarded) = (self.lie, now < self.guard_until);
        let lock = self.lock(key, now);
        let mut push = None;
        if lock.holder.is_none()
            && !is_guarded
            && let Some(first) = lock.queue.pop_front()
        {
            let token = (lock.last_token + 1).max(now / 1000);
            let expires = after(now, if lie == Lie::ShortLease { first.hold.ttl / 4 * 3 } else { first.hold.ttl });
            lock.last_token = token;
            lock.holder = Some(Holder { owner: first.hold.owner, token, expires });
            push = Some((first.process, first.news, Pushed { token, at: now }));
        }
        let again = lock.holder.as_ref().filter(|_| !lock.queue.is_empty()).map(|holder| holder.expires);
        if let Some((.., pushed)) = &push {
            self.highest_token = self.highest_token.max(pushed.token);
        }
        (push, again)
    }

    /// Reserves tokens for a hold, and prolongs it. `None`: others wait, or it is not its owner's.
    pub(crate) fn reserve(&mut self, hold: HoldOf, tokens: u64, even_if_awaited: bool, now: u64) -> Reserve {
        if !self.renew(hold, now) {
            return Reserve::Lost;
        }
        let lock = self.lock(hold.key, now);
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

    /// The server ends and starts again.
    pub(crate) fn restart(&mut self, forgets: bool) {
        for lock in self.locks.values_mut() {
            lock.listeners.clear();
            lock.queue.clear();
            if forgets {
                (lock.holder, lock.last_token) = (None, 0);
            }
        }
    }

    /// The locks that are held.
    pub(crate) fn held(&mut self, now: u64) -> Vec<u32> {
        let keys: Vec<_> = self.locks.keys().copied().collect();
        keys.into_iter().filter(|key| self.lock(*key, now).holder.is_some()).collect()
    }
}

fn after(now: u64, time: Duration) -> u64 {
    now.saturating_add(nanos(time))
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
