//! The pause between two attempts.

use std::time::Duration;

/// A pause that grows from one bound to the other, each time random up to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first bound.
    pub from: Duration,
    /// The last bound.
    pub to: Duration,
}
