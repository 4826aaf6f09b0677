//! Cases of the lease row that are the same on every server. The tests of each dialect include this folder, beside a module
//! `kit` that knows how to reach its server, and the macros that run each case there.

pub(crate) mod accounts;
mod builder;
mod cancelled;
mod clock_jumps;
pub(crate) mod crowds;
mod deadlocks;
mod dropped;
pub(crate) mod foreign_tables;
mod full_disk;
mod full_disk_row;
mod hosts;
mod inspect;
pub(crate) mod limits;
mod locked_rows;
mod lost_replies;
pub(crate) mod moved_host;
mod namespaces;
mod openings;
mod passwords;
mod rows;
mod runtimes;
mod schema_version;
mod sessions;
mod shedlock;
pub(crate) mod stopped_turns;
pub(crate) mod support;
pub(crate) mod sweep;
mod table_prefix;
mod tokens;
mod transactions;
mod versioned;
pub(crate) mod wait_queue;
mod wait_queue_crowds;
mod wait_queue_losses;
mod wait_queue_turns;

use super::kit;
