//! ZooKeeper: a line of ephemeral nodes, agreed on by a majority.
//!
//! A lock is a node whose children stand in line; the one with the lowest number holds it, and the transaction that made
//! it is the fencing token. Each waiter watches the node ahead of it.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed after the ttl, up to two ticks of the server later; after a change of the leader up to one more ttl |
//! | tokens | rise for ever |
//! | order | first come, first served |
//! | ttl | what the servers grant as a session, which is measured at opening: 3 to 39 s with a tick of 2 s |
//!
//! Holds of one process and ttl share a session, so the store frees them all together or not at all.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod breaks;
pub mod fenced;
mod inspect;
mod line;
mod place;
mod renewal;
mod session;
mod store;
mod task;
mod wire;

/// The client crate, for programs that talk to the same servers.
pub use ::zookeeper_client as client;

pub use crate::store::{OPENER, ZooKeeper};

/// For our own tests; may change in any release.
#[doc(hidden)]
pub mod internal {
    use dlock_contract::Hold;
    use zookeeper_client::SessionInfo;

    use crate::place::Held;

    /// The session of a hold, by which another client can take it over.
    pub fn session_of(hold: &Hold) -> Option<SessionInfo> {
        hold.session::<Held>()?.lease.session()
    }
}
