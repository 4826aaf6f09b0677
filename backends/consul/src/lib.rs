//! Consul: each hold has a session, and the session holds the lock's key. A majority of the servers keeps both.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed after twice the ttl, then the lock-delay (15 s unless the URL says otherwise) |
//! | tokens | the index of Consul's log at the grant; they rise for ever, unless the cluster is restored from an old snapshot |
//! | order | none: any waiter may be the next |
//! | ttl | from the servers' `session_ttl_min` (10 s by default) to 24 h |
//!
//! Flags, key layout and the protocol of permits are those of Consul's own tools. With `?keys=literal` the names are too, so
//! those tools and dlock share locks.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod api;
mod backend;
pub mod fenced;
mod forms;
mod lock;
mod probe;
mod server;
mod store;

pub use store::{Consul, OPENER};
