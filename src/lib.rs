#![doc = include_str!("../README.md")]

#[cfg(feature = "macros")]
pub use dlock_macros::distributed_lock;
pub use dlock_runtime::*;
