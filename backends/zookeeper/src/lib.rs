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
mod cluster;
mod core;
mod data;
mod fault;
mod inspect;
mod line;
mod paths;
mod place;
mod renewal;
mod session;
mod standing;
mod store;
mod task;

/// The client crate, for programs that talk to the same servers.
pub use ::zookeeper_client as client;

pub use crate::store::{OPENER, ZooKeeper};
