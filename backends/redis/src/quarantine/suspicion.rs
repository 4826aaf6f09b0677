//! Since when a server may have forgotten locks.
//!
//! For how long that matters is no part of it. The guard's length may be the longest ttl that this process has asked for,
//! and the next request may ask for a longer one.

use dlock_contract::BootInstant;

/// From when each guard counts, for a server or for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    pub(crate) failover: Option<BootInstant>,
    pub(crate) restart: Option<BootInstant>,
}

impl Suspicion {
    /// The later one of each: its guard ends later, however long it is.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { failover: self.failover.max(other.failover), restart: self.restart.max(other.restart) }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}
