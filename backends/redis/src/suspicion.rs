//! Since when a server may have forgotten locks.
//!
//! For how long that matters is no part of it. The guard's length may be the longest ttl that this process has asked for,
//! and the next request may ask for a longer one.

use dlock_contract::BootInstant;

/// From when each guard counts, for a server or for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspicion {
    pub(super) failover: Option<BootInstant>,
    pub(super) restart: Option<BootInstant>,
}

impl Suspicion {
    /// The later one of each: its guard ends later, however long it is.
    pub(super) fn or(self, other: Self) -> Self {
        Self { failover: self.failover.max(other.failover), restart: self.restart.max(other.restart) }
    }

    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}
