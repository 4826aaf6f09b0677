//! Locks in MySQL and MariaDB.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod fenced;
mod get_lock;

pub use get_lock::{GetLock, OPENER};
