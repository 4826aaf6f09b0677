//! The model of a store with leases: one table, its own clock, and the lies that a store may tell.

use std::collections::BTreeMap;
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
}

struct Holder {
    owner: OwnerBytes,
    token: u64,
    expires: u64,
}

pub(crate) enum Taken {
    Granted { token: u64 },
    Contended { lease_left: Duration },
    Guarded { left: Duration },
}

impl Store {
    pub(crate) fn new(lie: Lie) -> Self {
        Self { lie, ..Self::default() }
    }

    fn lock(&mut self, key: u32, now: u64) -> &mut Lock {
        let lock = self.locks.entry(key).or_default();
        lock.holder.take_if(|holder| holder.expires <= now);
        lock
    }

    /// `sent` is the number of the request.
    pub(crate) fn acquire(&mut self, hold: HoldOf, sent: u64, now: u64) -> Taken {
        let lie = self.lie;
        if lie != Lie::LateGrant && self.over.get(&hold.owner).is_some_and(|over| sent < *over) {
            return Taken::Contended { lease_left: Duration::ZERO };
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
            Some(holder) if !blind => {
                Taken::Contended { lease_left: Duration::from_nanos(holder.expires.saturating_sub(now)) }
            }
            _ => {
                let token = if lie == Lie::SameToken { highest.max(1) } else { (lock.last_token + 1).max(now / 1000) };
                lock.last_token = token;
                lock.holder = Some(Holder { owner: hold.owner, token, expires });
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
        let holder = self.lock(hold.key, now).holder.as_ref();
        holder.is_some_and(|holder| holder.owner == hold.owner && holder.token == hold.token)
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
        let is_owner = self.lock(key, now).holder.as_ref().is_some_and(|holder| holder.owner == owner);
        if is_owner { self.free(key) } else { Vec::new() }
    }

    fn ends(&mut self, owner: OwnerBytes, sent: u64) {
        let over = self.over.entry(owner).or_default();
        *over = sent.max(*over);
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
