//! What may differ between stores, as data: the core and the conformance suite branch on it, and on nothing else.

use std::time::Duration;

/// What a store can do with claims and grants. No field here that neither the core nor the suite branches on. What a store
/// does by a method of its own is a power, such as [`Backend::keeps`](crate::Backend::keeps), and has no field here.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// What ends a hold whose owner has died.
    pub expiry: Expiry,
    /// The ttls that the store can do, without rounding.
    pub ttl: TtlRange,
    /// Will the store free this hold at its ttl although others of the same group live on? Where not, the core frees
    /// a hold itself at the very moment it stops believing in it.
    pub expires_alone: bool,
    /// What the fencing tokens are worth.
    pub fencing: Fencing,
    /// Are waiters served in the order in which they came?
    pub fair: bool,
    /// Can it do [`Mode::Read`](crate::Mode) and `Write`?
    pub read_write: bool,
    /// Can it do [`Mode::Permits`](crate::Mode)?
    pub permits: bool,
    /// How a waiter learns that it is worth asking again.
    pub wake: WakeStyle,
    /// Does every hold and every waiter have a connection of its own? Such a connection must not live on a caller's
    /// runtime, which may block: the core runs everything of this store on its own thread.
    pub connection_per_hold: bool,
    /// The longest time beyond the ttl after which a dead holder's lock is granted again.
    pub takeover_delay: Duration,
    /// What the store survives.
    pub durability: Durability,
    /// The longest key in encoded bytes.
    pub max_key_bytes: usize,
    /// Does every key have a name there? Where not, a key that could be mistaken for another one is refused as
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), before any request.
    pub any_key: bool,
}

/// What ends the hold of a dead owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// A lease with a ttl: the store frees the lock when it ends, dead or alive.
    Lease,
    /// A session: the store frees the lock when the connection ends, or when it stays silent for the ttl. The next owner
    /// then comes in at once, whatever the former one believes.
    Session {
        /// Within this time after the end of a session its holder is [told](crate::SessionEnd), but for a round trip, and
        /// as long as the store answers.
        told: Duration,
    },
}

/// The ttls that a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Only multiples of this; nothing is rounded silently.
    pub step: Duration,
}

/// What fencing tokens are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// There are none.
    None,
    /// Each grant's token is above all earlier ones of its key, for ever.
    Monotonic,
    /// The same, unless the store forgets: a failover to a replica that lags, or a restart without its data together
    /// with a clock that was set back.
    MonotonicUnlessFailover,
}

/// How a waiter learns that it is worth asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeStyle {
    /// Not at all: the core asks again, with full jitter between bounds that grow from one to the other.
    Poll {
        /// The first bound.
        from: Duration,
        /// The last bound.
        to: Duration,
    },
    /// The store tells; the waiter then asks.
    Hint,
    /// The store's news is the lock itself.
    Grant,
}

/// What the store survives, from weak to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
