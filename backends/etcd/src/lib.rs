//! etcd: a queue of keys on leases, kept by a majority of the members.
//!
//! A lock is a range of keys. Each contender has one key, and the oldest key holds the lock. Its create revision is the
//! fencing token. dlock does not use the server's lock service, which hands a lock over only every 50 to 100 ms.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed at the ttl, up to 2 s later; after a change of the leader up to one more ttl |
//! | tokens | rise for ever, unless the cluster is restored from an old backup (then use its `--bump-revision`) |
//! | order | first come, first served, by the revision at which the waiter's key was created |
//! | ttl | whole seconds; the shortest is the server's own (2 s by default) and is measured when the store is opened |
//!
//! Renewed holds of one process with the same ttl share a lease, so the server frees them together. A hold that is not
//! renewed has its own lease.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod backend;
mod cluster_id;
mod combine;
mod connection;
mod enter;
mod exchange;
mod fault;
pub mod fenced;
mod forms;
mod inspect;
mod key_numbers;
mod key_range;
mod lease;
mod leave;
mod members;
mod names;
mod one_cluster;
mod place;
mod position;
mod renewal;
mod rights;
mod slots;
mod store;
mod together;
mod wake;

/// The client crate, for programs that talk to the same cluster; see `docs/adr/0007-etcd.md`.
pub use ::etcd_client as client;

use std::sync::Arc;

use dlock_contract::{Backend, Result};
use dlock_store::{Address, Clock, Opener};

pub use self::store::Etcd;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&members::FORM, |address, clock| Box::pin(open(address, clock)))
    .checked_by(|address| members::Members::of(address).map(drop));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Etcd::open_at(&address, clock).await?))
}
