//! The pause between two attempts.

use std::time::Duration;

/// A pause that grows from one bound to the other, each time random up to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backoff {
    /// The first bound.
    pub from: Duration,
    /// The last bound.
    pub to: Duration,
}

impl Backoff {
    /// A pause that grows from the first bound to the last.
    #[must_use]
    pub const fn new(from: Duration, to: Duration) -> Self {
        Self { from, to }
    }
}
