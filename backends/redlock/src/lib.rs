//! Redlock: an odd number of independent Redis servers, of which a majority decides.
//!
//! An owner holds the lock while it has it on more than half of the nodes, until the ttl is over, counted from before
//! the first request. A minority may be down, slow or away. Each node's part is the single server's: one value with a
//! lease, which holds the owner and is only changed by it.
//!
//! Its promise rests on clocks that run at about the same rate, and on nodes that keep their locks: a node that was
//! restarted has no vote until the longest ttl is over (`max_ttl` in the URL, the same for all programs), unless it
//! syncs every write to its disk. It cannot see `FLUSHALL`, nor a server that was replaced by another one behind the
//! same name. A holder that is paused beyond its ttl has another one beside it, as with every store: its late write is
//! stopped by the fencing token and by nothing else. Tokens rise with every grant, whichever majority gave it; where
//! nodes restart without their data, as long as the nodes' clocks differ by less than `max_ttl`.
//!
//! There is no wait queue: a caller that finds the lock taken asks again, at random moments.
//!
//! With `keys=literal` the names are those that redsync, node-redlock and their kind write on the same nodes, of which
//! each keeps the other out. Those give a node a vote as soon as it is up, whatever it has forgotten.
//!
// Its examples are tested in the facade.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod attempt;
mod backend;
mod holder;
mod identity;
mod inspect;
mod node;
mod nodes;
mod release;
mod renew;
mod round;
mod scripts;
mod store;
mod streaks;
mod tally;
mod token;
mod vote;

use std::sync::Arc;

use dlock_contract::{Backend, Result};
use dlock_store::{Address, Clock, Opener};

use dlock_redis::internal::millis;
pub use store::Redlock;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&nodes::FORM, |address, clock| Box::pin(open(address, clock)))
    .checked_by(|address| nodes::Nodes::of(address).map(drop));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Redlock::connect_to(&address, clock).await?))
}
