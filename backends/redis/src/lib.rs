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
mod backend;
mod capabilities;
mod carry;
mod check;
mod combine;
mod connection;
mod fault;
pub mod fenced;
mod grant;
mod guards;
mod hold;
mod inspect;
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
mod store;
mod strangers;
mod suspicion;
mod target;
mod together;
mod topology;
mod units;

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
    pub use crate::inspect::{LEAST, listed_key, lock_pattern, owner_of, record_name, scan_command, scanned};
    pub use crate::options::LOOK;
    pub use crate::renewals::in_batches;
    pub use crate::target::Target;
    pub use crate::units::millis;
}

use std::sync::Arc;

use dlock_contract::{Backend, Clock, Opener, Result};

pub use literal::Literal;
pub use redisson::Redisson;
use settings::Layout;
pub use store::Redis;
use target::Target;

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
