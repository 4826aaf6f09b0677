//! Redis 7.0 or newer: one primary, one behind sentinels, or a cluster; see `topology`.
//!
//! An uncontended cycle is two round trips: `SET NX PX` with `INCR` of the fencing counter in one go, and a
//! compare-and-delete. A caller that finds the lock taken may join a wait queue in the server. A release hands the lock to
//! the first waiter and pushes the news to its process.
//!
//! The value of an exclusive lock is one string with a lease, under the lock's own name: foreign clients see it, and
//! theirs keep ours out. Each reader, writer or permit has a lease of its own by the server's clock, in keys beside a
//! marker. The marker is under the lock's name until the last of them ends. One script grants them, in the order of
//! their wait queue. A key that `min_hold` keeps after its hold has no owner. The runs of a key with `once_per` are
//! noted in a record beside it, which stays until 400 days after its last use.
//!
//! Folders, from the bottom to the top: `layout`, `scripts`, `reply`, `url`, `socket`, `quarantine`, `cluster`, `topology`,
//! `combine`, `queue`, `connections`, `push`, `lock`, `literal` and `redisson`.
//!
//! Two more layouts are for servers that are shared with foreign clients' locks: [`Literal`], and `Redisson` with the
//! feature `redisson`.
//!
//! If the server loses its data (a restart without its file, a failover to a replica that lags, `FLUSHALL`), it loses locks
//! too: use the fencing token where that matters. Leases run by the server's wall clock.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod cluster;
mod combine;
mod connections;
pub mod fenced;
mod layout;
mod literal;
mod lock;
mod opener;
mod push;
mod quarantine;
mod queue;
#[cfg(feature = "redisson")]
mod redisson;
mod reply;
mod scripts;
mod socket;
mod sync;
mod topology;
mod url;

pub use literal::store::Literal;
pub use lock::store::Redis;
pub use opener::OPENER;
#[cfg(feature = "redisson")]
pub use redisson::store::Redisson;

/// Parts of this store that Redlock uses. No part of the public interface: it may change in any release.
#[doc(hidden)]
pub mod internal {
    pub mod check {
        pub use crate::connections::check::check_and_warn;
        pub use crate::reply::read::{field, is_forbidden, settings, text, uptime};
    }
    pub mod connection {
        pub use crate::connections::connection::Connection;
        pub use crate::connections::pool::Connections;
        pub use crate::scripts::call::{call, is_unknown_script, on};
        pub use crate::socket::options::OPEN_LIMIT;
    }
    pub mod fault {
        pub use crate::reply::fault::{conflict, is_wrong_type, no_cluster, unexpected};
    }
    pub mod layout {
        pub use crate::layout::name::{LockName, beside, in_redis};
        pub use crate::layout::value::{is_ours, note_of};
    }
    pub mod literal {
        pub use crate::literal::translate::{all_inside, for_claim, inside, under_its_name};
    }
    pub mod scripts {
        pub use crate::layout::token::{FENCE, LEAST_TOKEN, TOKEN_END};
        pub use crate::layout::value::MARK;
        pub use crate::scripts::clock::CLOCK;
        pub use crate::scripts::exclusive::SCRIPTS;
        pub use crate::scripts::lua::Lua;
        pub use crate::scripts::queue::{ADVANCE, BESIDE};
    }
    pub use crate::layout::units::millis;
    pub use crate::lock::inspect::{
        SHORTEST_RECORD, listed_key, lock_pattern, owner_of, record_name, scan_command, scanned,
    };
    pub use crate::lock::renew::in_batches;
    pub use crate::lock::store::probe_claim;
    pub use crate::quarantine::announced::Announced;
    pub use crate::reply::read::released;
    pub use crate::scripts::try_once::LOOK;
    pub use crate::topology::target::Target;
}
