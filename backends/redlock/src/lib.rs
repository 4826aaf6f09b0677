//! Redlock: an odd number of independent Redis servers, of which a majority decides.
//!
//! A lock is held by whoever has it on more than half of the nodes, for as long as the ttl is not over, counted from
//! before the first request. A minority may be down, slow or away. Each node's part is the single server's: one value
//! with a lease, which holds the owner and is only changed by it.
//!
//! What it promises rests on clocks that run at about the same rate, and on nodes that do not forget: a node that was
//! restarted has no vote until the longest ttl is over (`max_ttl` in the URL, the same for all programs), unless it
//! syncs every write to its disk. It cannot see `FLUSHALL`, nor a server that was replaced by another one behind the
//! same name. A holder that is paused beyond its ttl has another one beside it, as with every store: its late write is
//! stopped by the fencing token and by nothing else. Tokens rise with every grant, whichever majority gave it; where
//! nodes restart without their data, as long as the nodes' clocks differ by less than `max_ttl`.
//!
//! Nobody stands in line: who finds the lock taken asks again, at random moments.
//!
//! With `keys=literal` the names are those that redsync, node-redlock and their kind write on the same nodes, of which
//! each keeps the other out. Those give a node a vote as soon as it is up, whatever it has forgotten.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod address;
mod attempt;
mod hold;
mod identity;
mod node;
mod round;
mod scripts;
mod tally;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Attempt, Backend, Capabilities, Claim, Clock, Durability, Expiry, Fencing, Hold, LockKey, MAX_KEY_BYTES, Note,
    Opener, Released, Result, Stand, Standing, TtlRange, WakeStyle,
};
use futures::future::BoxFuture;

use address::Address;
use dlock_redis::internal::literal::{all_inside, for_claim, inside, under_its_name};
use dlock_redis::internal::millis;
use identity::Roster;
use node::{Link, Node};
use round::Patience;
use tally::{majority, shortage};

/// A node is waited for by 5 ms of it; in less than that a busy machine does not even come round to answering.
const MIN_TTL: Duration = Duration::from_secs(1);

/// For so long a node would have no vote after a restart.
const LONGEST_MAX_TTL: Duration = Duration::from_secs(86_400);

/// Locks in a majority of several Redis servers.
pub struct Redlock {
    nodes: Vec<Arc<Node>>,
    is_literal: bool,
    capabilities: Capabilities,
    clock: Clock,
}

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&["redlock"], |url, clock| Box::pin(open(url, clock)));

/// Opens the nodes behind a URL.
async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Redlock::connect(url, clock).await?))
}

impl Redlock {
    /// Connects to `redlock://[user:password@]host[:port],host[:port],host[:port][/db][?max_ttl=60s]`: an odd number of
    /// independent primaries, three at least, five as a rule. A minority may be down.
    ///
    /// User, password and database are the same for all nodes. `max_ttl` is the longest ttl that any program uses on
    /// these nodes, and must be the same for all; it is how long a node stays without a vote after a restart.
    /// `eviction=allow` accepts servers that may evict locks when their memory is full; `keys=literal` shares locks with
    /// other tools, under the [names](LockKey::literal) that they write.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) for a URL that cannot be used, an even number of
    /// nodes, and two names of one server; what [`Redis::connect`](dlock_redis::Redis::connect) fails with, for any
    /// node that answers; [`ErrorKind::Outage`](dlock_contract::ErrorKind::Outage) if fewer than a majority answer.
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let Address { targets, max_ttl, is_literal } = Address::parse(url)?;
        // Our thread runs the timers that bound what follows.
        dlock_contract::engine::background()?;
        let roster = Arc::new(Roster::new(targets.len(), max_ttl));
        let node = |(number, target)| Arc::new(Node::new(number, target, clock, &roster));
        let nodes = targets.into_iter().enumerate().map(node).collect();
        let capabilities = Capabilities { any_key: !is_literal, ..capabilities(max_ttl) };
        let redlock = Self { nodes, is_literal, capabilities, clock: clock.clone() };
        redlock.meet().await?;
        redlock.open_for_renewals().await?;
        Ok(redlock)
    }

    /// Opens the connections of the renewals to come, on our own thread: a node that lets nobody in later, since it is full
    /// or its password has changed, still renews.
    async fn open_for_renewals(&self) -> Result<()> {
        let nodes = self.nodes.clone();
        let open = async move {
            let mut asked = round::ask(&nodes, 0..nodes.len(), Patience::FIRST, |_, _| async { Ok(()) })?;
            // Which nodes cannot be reached has been said.
            while asked.next().await.is_some() {}
            Ok(())
        };
        dlock_contract::engine::background()?.run(open).await?
    }

    /// Looks at all nodes once: what is wrong with one of them is said now, and not when the others fail.
    async fn meet(&self) -> Result<()> {
        let nodes = self.nodes.len();
        let mut asked = round::ask(&self.nodes, 0..nodes, Patience::FIRST, |_, _| async { Ok(()) })?;
        let mut unable = Vec::new();
        while let Some((number, met)) = asked.next().await {
            match met {
                Ok(()) => {}
                Err(why) if !why.error.is_retryable() => return Err(why.error.again()),
                Err(why) => {
                    tracing::warn!(node = ?self.nodes.get(number), error = %why.error, "a Redlock node cannot be reached; the others are a majority as long as they stay");
                    unable.push(why);
                }
            }
        }
        if nodes - unable.len() < majority(nodes) { Err(shortage(nodes, &unable).error) } else { Ok(()) }
    }
}

impl Backend for Redlock {
    fn kind(&self) -> &'static str {
        "redlock"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name_of(&self, key: &LockKey) -> Result<LockKey> {
        if self.is_literal { key.literal() } else { Ok(key.clone()) }
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, _: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            if !self.is_literal {
                return self.attempt(claim).await;
            }
            self.attempt(&under_its_name(claim)?).await.map(|attempt| for_claim(attempt, claim))
        })
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(async move {
            if !self.is_literal {
                return self.renew_all(holds).await;
            }
            match all_inside(holds) {
                Ok(named) => self.renew_all(&named.iter().collect::<Vec<_>>()).await,
                Err(none) => none,
            }
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move { if self.is_literal { self.free(&inside(hold)?).await } else { self.free(hold).await } })
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.is_literal.then(|| under_its_name(claim)) {
                None => self.give_up(claim).await,
                Some(Ok(named)) => self.give_up(&named).await,
                // It was refused: nothing of it can be there.
                Some(Err(_)) => Ok(()),
            }
        })
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        Box::pin(async move { self.note(&self.name_of(key)?).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.nodes.iter().for_each(|node| node.close());
        Box::pin(async {})
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redlock({:?})", self.nodes)
    }
}

fn capabilities(max_ttl: Duration) -> Capabilities {
    Capabilities {
        expiry: Expiry::Lease,
        ttl: TtlRange { min: MIN_TTL, max: max_ttl, step: Duration::from_millis(1) },
        expires_alone: true,
        fencing: Fencing::MonotonicUnlessFailover,
        fair: false,
        read_write: false,
        permits: false,
        min_hold: false,
        once_per: false,
        cohort: false,
        carries: false,
        together: false,
        // Each question goes to all nodes, so less often than to one; the end of a lease is known besides.
        wake: WakeStyle::Poll { from: Duration::from_millis(50), to: Duration::from_secs(2) },
        connection_per_hold: false,
        // Some rounds of split votes, among those who waited for the end.
        takeover_delay: Duration::from_secs(1),
        // One node may restart; all of them together forget.
        durability: Durability::Memory,
        max_key_bytes: MAX_KEY_BYTES,
        any_key: true,
    }
}
