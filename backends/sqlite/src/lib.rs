//! Locks in one SQLite file, for the processes of one host. No server to run.
//!
//! Every request is **one statement that commits by itself**. So a caller that is dropped at any point leaves no
//! open transaction behind: the connection's thread ends the statement whole, or never begins it. Rows are read to the
//! end of the statement, since SQLite commits only there: an answer taken earlier could still be rolled back.
//!
//! A lease ends by the clock that counts suspend, which all processes of a host share; the boot id beside it says
//! whether the host was restarted since, which ends all holders. Elsewhere than on Linux there is no such
//! shared clock: there the wall clock decides, and setting it forward by more than a ttl can let a second holder in.
//!
//! Nothing waits for the disk while it holds the file's write lock. A power failure may undo commits, but it also
//! changes the boot id, which frees all locks. Only the tokens must not come again, so the counter
//! runs under a bound that *is* on the disk, raised a million at a time, and goes on from the bound after a restart.
//! Where the wall clock decides, locks outlive a restart, and every commit waits for the disk.
//!
//! A free lock has no row. Tokens rise all the same, for ever: one counter, in a row of its own, serves all locks.
//!
//! A release wakes waiters of all processes, on Linux by inotify. The request that frees a lock has a second statement
//! for this, which writes nothing and runs after the commit.
//!
//! A lock with one holder, by far the most frequent, is one row of one table. What several hold (`shares`), what
//! starts once in a period (`runs`) and what stays taken after its end go by the same row: triggers put it there and
//! take it away, so that each of them is still one statement, and each sees the others. Only starts of periods wait
//! for the disk, since they count beyond a restart of the host.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod connection;
mod context;
mod exclusive;
mod fault;
pub mod fenced;
mod file;
mod filesystem;
mod index;
mod inspect;
mod look;
mod modes;
mod renewals;
mod request;
mod runs;
mod schema;
mod shares;
#[cfg(target_os = "linux")]
mod side_files;
mod store;
mod sweep;
mod tables;
mod time;
#[cfg(target_os = "linux")]
mod turns;
mod wakes;
#[cfg(target_os = "linux")]
mod watches;
mod worker;

use std::sync::Arc;

use dlock_contract::{Backend, Result};
use dlock_store::{Address, Clock, Opener};

pub(crate) use self::fault::fault;
pub use self::store::Sqlite;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&file::FORM, |address, clock| Box::pin(open(address, clock)))
    .checked_by(|address| file::DatabaseFile::of(address).map(drop));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Sqlite::open_at(&address, clock).await?))
}
