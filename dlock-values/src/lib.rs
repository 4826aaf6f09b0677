//! How the values of dlock's options are written. The attribute, settings from outside of the code and the environment read
//! them here, so a text means the same everywhere.
//!
//! It is a part of [`dlock-rs`](https://docs.rs/dlock-rs) and may change in any release. It is a crate of its own because
//! the macros run in the compiler and cannot use the engine (ADR 0008).

#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod duration;
mod options;

pub use duration::{LONGEST, Wrong, duration};
pub use options::{
    Pauses, Renew, Retry, SHORTEST_INTERVAL, Wait, count, max_waiters, number, pauses, renew, retry, wait,
};
