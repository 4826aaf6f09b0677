//! The clock of a tokio runtime that a test has paused.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock_contract::Origin;

/// The clock of a tokio runtime that was paused: it goes on by itself only when all tasks wait.
#[derive(Debug)]
pub(crate) struct Paused {
    runtime: Origin,
    seen: Mutex<tokio::time::Instant>,
}

impl Paused {
    /// The present runtime's, if it is paused.
    pub(crate) fn here() -> Option<Self> {
        let runtime = Origin::here()?;
        let seen = tokio::time::Instant::now();
        // A clock that is not paused follows the standard library's. So wait until that one has moved on.
        while Instant::now() <= seen.into_std() {
            std::hint::spin_loop();
        }
        (tokio::time::Instant::now() == seen).then(|| Self { runtime, seen: Mutex::new(seen) })
    }

    /// How far it has moved since the last look. Only its own runtime can look.
    pub(crate) fn passed(&self) -> Duration {
        if Origin::here() != Some(self.runtime) {
            return Duration::ZERO;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = tokio::time::Instant::now();
        let passed = now.saturating_duration_since(*seen);
        *seen = now;
        passed
    }
}
