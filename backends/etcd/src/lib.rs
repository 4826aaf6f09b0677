//! etcd: a line of keys on leases, agreed on by a majority.
//!
//! A lock is a range of keys, one for each contender, and the oldest holds it; its create revision is the fencing
//! token. The queue is our own: the server's lock service hands over every 50 to 100 ms only.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed at the ttl, up to 2 s later; after a change of the leader up to one more ttl |
//! | tokens | rise for ever, unless the cluster is restored from an old backup (then use its `--bump-revision`) |
//! | order | first come, first served, by the revision at which a waiter came |
//! | ttl | whole seconds, from the server's shortest (2 s by default), which is measured at opening |
//!
//! Holds of one process and ttl share a lease, so the store frees them all together or not at all.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod connection;
mod enter;
mod fault;
pub mod fenced;
mod inspect;
mod lease;
mod leave;
mod members;
mod names;
mod place;
mod renewal;
mod rights;
mod slots;
mod store;
mod together;
mod wake;

/// The client crate, for programs that talk to the same cluster; see `docs/adr/0007-etcd-needs-protoc.md`.
pub use ::etcd_client as client;

use std::sync::Arc;

use dlock_contract::{Address, Backend, Clock, Opener, Result};

pub use self::store::Etcd;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&members::FORM, |address, clock| Box::pin(open(address, clock)));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Etcd::open_at(&address, clock).await?))
}
