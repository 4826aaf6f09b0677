//! Since when a server may have lost locks.
//!
//! A suspicion has no end. The quarantine may last for the longest ttl that this process has asked for, and the next
//! request may ask for a longer one.

use dlock_contract::BootInstant;

/// The failover and the restart that may have lost locks, of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    pub(crate) failover: Option<BootInstant>,
    pub(crate) restart: Option<BootInstant>,
}

impl Suspicion {
    /// The later one of each: its quarantine ends later, whatever its length.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { failover: self.failover.max(other.failover), restart: self.restart.max(other.restart) }
    }
}
