//! ZooKeeper: a queue of ephemeral nodes, kept by a majority of the servers.
//!
//! A lock is a node, and its children are the queue. The child with the lowest number holds the lock. The transaction that
//! made this child is the fencing token. Each waiter watches the node ahead of it.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed after the ttl, up to two ticks of the server later; after a change of the leader up to one more ttl |
//! | tokens | rise for ever |
//! | order | first come, first served |
//! | ttl | the session timeouts that the servers grant, measured when the store is opened: 3 to 39 s with a tick of 2 s |
//!
//! Holds of one process with the same ttl share a session. So the servers free them together.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod break_hold;
pub mod fenced;
mod forms;
mod inspect;
mod lock_nodes;
mod place;
mod queue;
mod renewal;
mod server;
mod session;
mod store;

/// The client crate, for programs that talk to the same servers.
pub use ::zookeeper_client as client;

pub use crate::store::{OPENER, ZooKeeper};

/// For our own tests; may change in any release.
#[doc(hidden)]
pub mod internal {
    use dlock_contract::{BootInstant, Hold};
    use zookeeper_client::SessionInfo;

    use crate::place::HoldSession;
    use crate::store::ZooKeeper;

    /// The session of a hold. Another client can take it over.
    pub fn session_of(hold: &Hold) -> Option<SessionInfo> {
        hold.session::<HoldSession>()?.lease.session()
    }

    /// Whether the session of a hold lives.
    pub fn lives(hold: &Hold) -> bool {
        hold.session::<HoldSession>().is_some_and(|held| held.lease.lives())
    }

    /// Confirms the session of a hold, as the answer to a request that left at this time does.
    pub fn confirm(hold: &Hold, since: BootInstant) {
        if let Some(held) = hold.session::<HoldSession>() {
            held.lease.confirm(since);
        }
    }

    /// How many claims may have nodes, as far as this process knows.
    pub fn places(store: &ZooKeeper) -> usize {
        store.shared.places.count()
    }
}
