//! The profile of a store: all that may differ between stores, as data. The engine and the conformance suite branch on
//! it, and on nothing else.

use std::time::Duration;

use crate::key::MAX_KEY_BYTES;

/// The kind of a store, and its abilities with claims and grants. The engine or the suite reads every field of it.
/// An ability that needs a method of its own is a power, such as [`Backend::keeps`](crate::Backend::keeps), and has no
/// field here.
///
/// ```
/// use std::time::Duration;
///
/// use dlock_contract::{Fencing, Profile, TtlRange};
///
/// let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(86_400)).in_steps_of(Duration::from_millis(1));
/// let profile = Profile::new("table", ttl).with(|table| table.fencing = Fencing::Monotonic);
/// assert!(!profile.fair);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The kind of store in one word, such as `redis`.
    pub kind: &'static str,
    /// How the hold of a dead owner ends.
    pub expiry: Expiry,
    /// The ttls that the store supports, without rounding.
    pub ttl: TtlRange,
    /// Whether the store frees a hold at its ttl even if others of its group live on. If not, the engine itself
    /// releases a hold as soon as it stops trusting it.
    pub expires_alone: bool,
    /// How far the fencing tokens can be trusted.
    pub fencing: Fencing,
    /// Whether waiters are served in the order in which they came.
    pub fair: bool,
    /// Whether it supports [`Mode::Read`](crate::Mode) and `Write`.
    pub read_write: bool,
    /// Whether it supports [`Mode::Permits`](crate::Mode).
    pub permits: bool,
    /// How a waiter learns that it is worth asking again.
    pub wake: WakeStyle,
    /// On which thread the requests of a caller run.
    pub runs_on: RunsOn,
    /// The number of ttls without a sign of its holder after which the store frees a lock. It is one, unless the store
    /// treats a ttl as the least time to wait.
    pub silent_ttls: u32,
    /// The longest time beyond these ttls after which a dead holder's lock is granted again.
    pub takeover_delay: Duration,
    /// The failures that the store's grants survive.
    pub durability: Durability,
    /// The most holds in a row that one client gets, once another client waits and has been refused. `None`: no bound
    /// but that of [`fair`](Self::fair).
    pub holds_in_a_row: Option<u32>,
    /// The longest key in encoded bytes.
    pub max_key_bytes: usize,
    /// Whether every key has a name in the store. If not, a key that could be mistaken for another one is refused as
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before any request.
    pub any_key: bool,
}

impl Profile {
    /// A store whose leases end alone, of any ttl in this range. It promises nothing more: exclusive locks, waiters that
    /// poll, no fencing tokens, nothing that outlives a restart. A dead holder's lock is free at its ttl, and every key up
    /// to [`MAX_KEY_BYTES`] has a name.
    #[must_use]
    pub const fn new(kind: &'static str, ttl: TtlRange) -> Self {
        Self {
            kind,
            expiry: Expiry::Lease,
            ttl,
            expires_alone: true,
            fencing: Fencing::None,
            fair: false,
            read_write: false,
            permits: false,
            wake: REMOTE_POLL,
            runs_on: RunsOn::Caller,
            silent_ttls: 1,
            takeover_delay: Duration::ZERO,
            durability: Durability::Memory,
            holds_in_a_row: None,
            max_key_bytes: MAX_KEY_BYTES,
            any_key: true,
        }
    }

    /// The profile after a change of its fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The longest time after the last sign of a dead holder with this ttl until its lock is granted again.
    #[must_use]
    pub fn takeover(&self, ttl: Duration) -> Duration {
        ttl.saturating_mul(self.silent_ttls).saturating_add(self.takeover_delay)
    }
}

/// How the hold of a dead owner ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// A lease with a ttl: the store frees the lock when the lease ends, even if the owner lives.
    Lease,
    /// A session: the store frees the lock when the connection ends, or when it stays silent for the ttl. The next owner
    /// then gets the lock at once, whatever the former one believes.
    Session {
        /// The longest time from the end of a session until its holder [hears of it](crate::Session::ended) and a
        /// renewal returns the loss. The round trip comes on top, and the store must answer.
        told: Duration,
    },
}

/// The ttls that a store supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TtlRange {
    /// The shortest ttl.
    pub min: Duration,
    /// The longest ttl.
    pub max: Duration,
    /// Only multiples of this, or any if it is zero; nothing is rounded silently.
    pub step: Duration,
}

impl TtlRange {
    /// From the shortest ttl to the longest, both of them included, in steps of any length.
    #[must_use]
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, step: Duration::ZERO }
    }

    /// Allows only multiples of `step`.
    #[must_use]
    pub const fn in_steps_of(mut self, step: Duration) -> Self {
        self.step = step;
        self
    }
}

/// On which thread the requests of a caller run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunsOn {
    /// On the caller's own runtime: for connections that many requests share.
    Caller,
    /// On dlock's own thread: for a connection per hold and per waiter, which must not live on a runtime that may block.
    OwnThread,
}

/// How far fencing tokens can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// There are none.
    None,
    /// Each grant's token is above all earlier ones of its key, unless a backup of the store is restored.
    Monotonic,
    /// Like `Monotonic`, unless the store forgets: a failover to a replica that lags, or a restart without its data
    /// together with a clock that was set back.
    MonotonicUnlessFailover,
}

/// How a waiter learns that it is worth asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeStyle {
    /// The store sends no news: the engine asks again after pauses with full jitter. Their bound grows from `from` to
    /// `to`.
    Poll {
        /// The first bound.
        from: Duration,
        /// The last bound.
        to: Duration,
    },
    /// The store notifies the waiter, which then asks.
    Hint,
    /// The store's news is the lock itself.
    Grant,
}

/// The failures that a store's grants survive, from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: a restart of the store forgets who holds what.
    Memory,
    /// A restart of the one node.
    Node,
    /// A failover too: grants are agreed on by a majority.
    Consensus,
}

/// The pace for a remote store that can only be polled.
pub const REMOTE_POLL: WakeStyle = WakeStyle::Poll { from: Duration::from_millis(100), to: Duration::from_secs(5) };
