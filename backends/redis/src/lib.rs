//! Redis 7.0 or newer: one primary, one behind sentinels, or a cluster; see `topology`.
//!
//! An uncontended cycle is two round trips: `SET NX PX` with `INCR` of the fencing counter in one go, and a
//! compare-and-delete. Who finds the lock taken may stand in a line in the server; a release hands the lock to the
//! head of the line and pushes the news to its process.
//!
//! The value of an exclusive lock is one string with a lease, under the lock's own name: other tools see it, and theirs
//! keep ours out. Readers, writers and permits have each a lease of its own by the server's clock, in keys beside a
//! marker that stands under the name for as long as the last of them; they come in by one script, in the order of
//! their line. A key that has to stay taken after its hold belongs to nobody meanwhile. The runs of a key with
//! `once_per` are noted in a record beside it, which stays until 400 days after its last use.
//!
//! Two more layouts are for servers that are shared with other tools' locks: [`Literal`] and [`Redisson`].
//!
//! What the server's memory forgets (a restart without its file, a failover to a replica that lags, `FLUSHALL`), it
//! forgets of locks too: use the fencing token where that matters. Leases run by the server's wall clock.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod acquire;
mod arrivals;
mod carry;
mod check;
mod combine;
mod connection;
mod fault;
pub mod fenced;
mod grant;
mod guards;
mod hold;
mod layout;
mod line;
mod literal;
mod native;
mod options;
mod periods;
mod push;
mod redisson;
mod renewals;
mod replicas;
mod rights;
mod scripts;
mod scripts_line;
mod scripts_shares;
mod settings;
mod shards;
mod shares;
mod socket;
mod strangers;
mod suspicion;
mod target;
mod together;
mod topology;

/// Parts of this store that Redlock uses. No part of the public interface: it may change in any release.
#[doc(hidden)]
pub mod internal {
    pub mod check {
        pub use crate::check::{check, field, is_forbidden, settings, text, uptime};
    }
    pub mod connection {
        pub use crate::connection::{Connection, Connections, OPEN_LIMIT, call, is_unknown_script, on};
    }
    pub mod fault {
        pub use crate::fault::{is_wrong_type, no_cluster, unexpected};
    }
    pub mod layout {
        pub use crate::layout::{Name, conflict, is_ours, note_of};
    }
    pub mod literal {
        pub use crate::literal::{all_inside, for_claim, inside, under_its_name};
    }
    pub mod scripts {
        pub use crate::scripts::{ADVANCE, CLOCK, FENCE, LEAST_TOKEN, Lua, MARK, SCRIPTS, TOKEN_END};
    }
    pub use crate::hold::released;
    pub use crate::millis;
    pub use crate::options::LOOK;
    pub use crate::renewals::in_batches;
    pub use crate::target::Target;
}

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, BootInstant, Capabilities, Claim, Clock, Durability, Ending, Error, Expiry, Fencing, Hold,
    LastSuccess, LockKey, MAX_KEY_BYTES, Note, Opener, Owner, Released, Reservation, Reserved, Result, Signal, Stand,
    Standing, Together, TtlRange, Wake, WakeStyle,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use connection::Connections;
use layout::Entry;
use line::{Contended, GRANT_LIMIT, Places};
pub use literal::Literal;
use push::Pushes;
pub use redisson::Redisson;
use settings::Layout;
use strangers::Strangers;
use target::Target;
use topology::watch::Watch;

/// Locks in one Redis server.
// Aligned: see `registry::Shared`.
#[repr(align(128))]
pub struct Redis {
    connections: Arc<Connections>,
    places: Arc<Places>,
    pushes: Pushes,
    contended: Contended,
    strangers: Strangers,
    capabilities: Capabilities,
    clock: Clock,
    /// Follows failovers.
    watch: Mutex<Option<Watch>>,
}

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(
    &["redis", "rediss", "redis+unix", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"],
    |url, clock| Box::pin(open(url, clock)),
);

/// Opens the server behind a URL.
async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    let target = Target::parse(url)?;
    Ok(match target.settings.layout {
        Layout::Own => Arc::new(Redis::open(target, clock).await?),
        Layout::Literal => Arc::new(Literal::open(target, clock).await?),
        Layout::Redisson => Arc::new(Redisson::open(target, clock).await?),
    })
}

impl Redis {
    /// Connects to `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=…&user=…&pass=…]`, to the primary that
    /// `redis-sentinel://[user:password@]host[:port],…/name[/db]` leads to, or to the cluster of
    /// `redis-cluster://[user:password@]host[:port],…`; with `rediss` in the place of `redis` by TLS.
    ///
    /// In a user or password, `@ : / % # ?` are percent-encoded. `docs/backends.md` lists the parameters: `eviction`,
    /// `restart_guard`, `failover_guard`, `wait_replicas`, files for TLS, the sentinels' own credentials.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) for a URL that cannot be used or that asks for another
    /// layout, and for a server that may evict locks;
    /// [`ErrorKind::Unsupported`](dlock_contract::ErrorKind::Unsupported) below Redis 7.0 and for a cluster behind a plain URL; [`ErrorKind::NotPrimary`](dlock_contract::ErrorKind::NotPrimary) for a replica;
    /// [`ErrorKind::PermissionDenied`](dlock_contract::ErrorKind::PermissionDenied), with the rights that lack; [`ErrorKind::Outage`](dlock_contract::ErrorKind::Outage) if there is no answer,
    /// or no majority of the sentinels.
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let target = Target::parse(url)?;
        target.settings.check_layout(Layout::Own)?;
        Self::open(target, clock).await
    }

    async fn open(target: Target, clock: &Clock) -> Result<Self> {
        // Our thread runs the timers that bound what follows.
        dlock_contract::engine::background()?;
        let connections = Arc::new(Connections::new(target, clock.clone()));
        check::check(&connections).await?.tell(&connections);
        connections.open_for_renewals().await?;
        connections.meet_all().await;
        let mut capabilities = capabilities();
        if connections.target.settings.wait_replicas > 0 {
            capabilities.wake = WakeStyle::Hint;
            capabilities.carries = false;
        }
        // In a cluster it depends on their slots.
        capabilities.together = connections.cluster().is_none() && connections.target.settings.wait_replicas == 0;
        let watch = Watch::start(&connections)?;
        let places = Arc::<Places>::default();
        let process: Arc<str> = Owner::fresh()?.to_hex().get(..16).unwrap_or_default().into();
        Ok(Self {
            pushes: Pushes::new(connections.clone(), places.clone(), process),
            connections,
            places,
            contended: Contended::default(),
            strangers: Strangers::default(),
            capabilities,
            clock: clock.clone(),
            watch: Mutex::new(watch),
        })
    }

    /// One attempt, with a look at what the server may have forgotten before, and at its replicas after.
    async fn guarded(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        self.connections.guards.asks_for(claim.ttl);
        // Opens the connection, if there is none, and so finds out.
        let mut shared = self.connections.here().await.map_err(Error::never_sent)?;
        self.connections.admit(&claim.key).await.map_err(Error::never_sent)?;
        // That may have taken a while, and the server may be another one since.
        if !self.connections.is_usable(&shared) {
            shared = self.connections.here().await.map_err(Error::never_sent)?;
        }
        // Before what comes of the request can have been granted.
        let high = self.connections.high();
        match self.attempt(shared, claim, stand).await? {
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.hearing(wake, high))),
            Attempt::Acquired(hold)
                if self.connections.target.settings.wait_replicas == 0 && self.connections.admits(&claim.key) =>
            {
                Ok(Attempt::Acquired(hold))
            }
            attempt => Box::pin(self.checked(claim, attempt, high)).await,
        }
    }

    /// What is left of an attempt where the server has been found to forget, or where replicas must have it too.
    async fn checked(&self, claim: &Arc<Claim>, attempt: Attempt, high: u64) -> Result<Attempt> {
        let replicas = self.connections.target.settings.wait_replicas;
        match attempt {
            Attempt::Acquired(hold) => {
                // What is refused now is undone by the core, as after every failure.
                self.connections.admit(&claim.key).await?;
                if replicas == 0 {
                    Ok(Attempt::Acquired(hold))
                } else {
                    self.replicated(hold).await.map(Attempt::Acquired)
                }
            }
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.hearing(wake, high))),
            other => Ok(other),
        }
    }

    /// News of a grant count as an answer does; else they are a reason to ask. No token that was seen before the lock was
    /// asked for is above `high`.
    fn hearing(&self, wake: Wake, high: u64) -> Wake {
        if self.connections.target.settings.wait_replicas > 0 {
            return Self::as_hint(wake);
        }
        let Wake { signal: Some(signal), .. } = wake else { return wake };
        let connections = self.connections.clone();
        let believed = move |news| match news {
            // The hold that is dropped here is found again by its owner.
            Signal::Granted(hold) if !connections.believes(&hold, high) => Signal::Ask,
            news => news,
        };
        Wake { signal: Some(Box::pin(signal.map(move |news| news.map(believed)))), ..wake }
    }

    fn entry<'a>(&'a self, claim: &'a Claim) -> Entry<'a> {
        Entry { process: &self.pushes.process, grant_ms: millis(grant_of(claim)), claim }
    }
}

impl Backend for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.guarded(claim, stand))
    }

    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>> {
        Box::pin(self.attempt_all(claims))
    }

    fn expects_others(&self, key: &LockKey) {
        self.contended.note(key, self.clock.now());
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(self.renew_all(holds))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.free(hold))
    }

    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        _until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(self.free_to(hold, next))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.places.dismiss(&claim.owner);
            self.give_up(claim).await
        })
    }

    fn end<'a>(&'a self, hold: &'a Hold, ending: &'a Ending) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.finish(hold, ending))
    }

    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>> {
        Box::pin(self.reserve_tokens(&hold.claim, asked))
    }

    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>> {
        Box::pin(self.success(key))
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        Box::pin(self.note(key))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.pushes.stop();
        self.connections.close();
        Box::pin(async {})
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({:?})", self.connections.target)
    }
}

/// For how long a lock is granted to one that has not spoken yet.
fn grant_of(claim: &Claim) -> Duration {
    // One that nobody renews must be granted for its full ttl at once.
    if claim.renewed { claim.ttl.min(GRANT_LIMIT) } else { claim.ttl }
}

fn capabilities() -> Capabilities {
    Capabilities {
        expiry: Expiry::Lease,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(10 * 365 * 86_400),
            step: Duration::from_millis(1),
        },
        expires_alone: true,
        fencing: Fencing::MonotonicUnlessFailover,
        fair: true,
        read_write: true,
        permits: true,
        min_hold: true,
        once_per: true,
        cohort: true,
        carries: true,
        together: true,
        wake: WakeStyle::Grant,
        connection_per_hold: false,
        // A silent head of the line costs one short grant and one poll.
        takeover_delay: Duration::from_secs(2),
        durability: Durability::Memory,
        max_key_bytes: MAX_KEY_BYTES,
        any_key: true,
    }
}

/// In whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// At most what Lua counts exactly.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_futures_of_an_uncontended_call_stay_small() {
        fn size<A, B, F>(_: fn(A, B) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        fn size_3<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
            std::mem::size_of::<F>()
        }
        let ask = size_3::<&'static Redis, &'static Arc<Claim>, Stand, _>(Redis::guarded);
        let free = size::<&'static Redis, &'static Hold, _>(Redis::free);
        // Beyond 1 KiB glibc's allocator takes a lock that all threads share.
        assert!(ask <= 1024 && free <= 1024, "{ask} {free}");
    }
}
