//! The facade.
#[cfg(feature = "macros")]
pub use dlock_macros::*;
pub use dlock_runtime::*;
