#![doc = include_str!("../README.md")]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "macros")]
pub use dlock_macros::{distributed_lock, optimistic, scheduled_lock};
pub use dlock_runtime::*;

/// What the guide for newcomers shows is compiled.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../docs/coming-from.md")]
struct ComingFrom;

#[cfg(doctest)]
#[doc = include_str!("../docs/redlock.md")]
struct Redlock;
