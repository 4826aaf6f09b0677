//! The facade.
pub use dlock_runtime::*;
