//! The capabilities of one Redis server.

use std::time::Duration;

use dlock_contract::{Capabilities, Durability, Expiry, Fencing, MAX_KEY_BYTES, TtlRange, WakeStyle};

pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        expiry: Expiry::Lease,
        ttl: TtlRange {
            min: Duration::from_millis(10),
            max: Duration::from_secs(10 * 365 * 86_400),
            step: Duration::from_millis(1),
        },
        expires_alone: true,
        fencing: Fencing::MonotonicUnlessFailover,
        fair: true,
        read_write: true,
        permits: true,
        wake: WakeStyle::Grant,
        connection_per_hold: false,
        // A silent first waiter costs one short grant and one poll.
        takeover_delay: Duration::from_secs(2),
        durability: Durability::Memory,
        max_key_bytes: MAX_KEY_BYTES,
        any_key: true,
    }
}
