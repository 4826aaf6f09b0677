//! The SQLite backend on real files.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests stop at the first surprise too"
)]

#[path = "../holds/mod.rs"]
mod holds;

mod cycle;
mod dropped;
mod fenced;
mod file;
mod store;
mod tokens;
