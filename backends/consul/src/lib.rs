//! Consul: a session for each hold, and keys that the session takes, agreed on by a majority of the servers.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed after twice the ttl, then the lock-delay (15 s unless the URL says otherwise) |
//! | tokens | the index of Consul's log at the grant: they rise for ever, unless a cluster is restored from an old snapshot |
//! | order | none: any waiter may be the next |
//! | ttl | from the servers' `session_ttl_min` (10 s by default) to 24 h |
//!
//! Names, flags and the protocol of permits are those of Consul's own tools. With `?keys=literal` they share locks with us.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod api;
mod backend;
pub mod fenced;
mod lock;
mod probe;
mod server;
mod store;

pub use store::{Consul, OPENER};
