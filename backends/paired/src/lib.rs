//! A lock that is taken in two stores.
//!
//! [`Paired`] takes each lock in a quick *gate*, such as Redis, and then in an *authority*, such as a lease row of MySQL.
//! The authority alone decides who holds the lock: it gives the fencing token, and only its answer can declare a loss. The
//! gate keeps the waiters away from the authority. A gate that fails or forgets costs speed, and never safety.
//!
//! [`Migrating`] takes each lock in an *old* and a *new* store, while a fleet moves from one to the other. A loss in either
//! store is a loss of the lock.
//!
//! Both know other stores only by the contract. `in_order` has the parts that they share: taking a lock in the first store
//! and then in the second.
//!
// Its examples are tested in the facade.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod in_order;
mod migrating;
mod paired;
mod url;

pub use migrating::{Migrating, MigratingBuilder, Numbers};
pub use paired::{GateDown, Paired, PairedBuilder};
pub use url::{FORMS, members, open};
