//! Which promises a store has given: every branch of the suite on capabilities.

use dlock_contract::{Capabilities, Durability, Expiry, Fencing, WakeStyle};

type When = Result<(), &'static str>;

pub(crate) fn always(_: &Capabilities) -> When {
    Ok(())
}

pub(crate) fn leases(can: &Capabilities) -> When {
    need(can.expiry == Expiry::Lease, "expiry: Session")
}

pub(crate) fn sessions(can: &Capabilities) -> When {
    need(matches!(can.expiry, Expiry::Session { .. }), "expiry: Lease")
}

pub(crate) fn fences(can: &Capabilities) -> When {
    need(can.fencing != Fencing::None, "fencing: None")
}

pub(crate) fn durable(can: &Capabilities) -> When {
    need(can.durability >= Durability::Node, "durability: Memory")
}

pub(crate) fn fair(can: &Capabilities) -> When {
    need(can.fair, "fair: false")
}

pub(crate) fn wakes(can: &Capabilities) -> When {
    need(!matches!(can.wake, WakeStyle::Poll { .. }), "wake: Poll")
}

pub(crate) fn grants(can: &Capabilities) -> When {
    need(can.wake == WakeStyle::Grant, "wake: not Grant")
}

pub(crate) fn many_runtimes(can: &Capabilities) -> When {
    need(!can.connection_per_hold, "connection_per_hold: true")
}

pub(crate) fn modes(can: &Capabilities) -> When {
    need(can.read_write || can.permits, "read_write, permits: false")
}

pub(crate) fn modes_with_fences(can: &Capabilities) -> When {
    modes(can).and(fences(can))
}

pub(crate) fn readers(can: &Capabilities) -> When {
    need(can.read_write, "read_write: false")
}

pub(crate) fn readers_in_order(can: &Capabilities) -> When {
    readers(can).and(fair(can))
}

pub(crate) fn permits(can: &Capabilities) -> When {
    need(can.permits, "permits: false")
}

pub(crate) fn keeps(can: &Capabilities) -> When {
    need(can.min_hold, "min_hold: false")
}

pub(crate) fn keeps_permits(can: &Capabilities) -> When {
    keeps(can).and(permits(can))
}

pub(crate) fn periods(can: &Capabilities) -> When {
    need(can.once_per, "once_per: false")
}

pub(crate) fn cohorts(can: &Capabilities) -> When {
    need(can.cohort, "cohort: false")
}

pub(crate) fn cohorts_in_line(can: &Capabilities) -> When {
    cohorts(can).and(wakes(can))
}

pub(crate) fn carries(can: &Capabilities) -> When {
    need(can.carries, "carries: false").and(grants(can))
}

pub(crate) fn together(can: &Capabilities) -> When {
    need(can.together, "together: false")
}

pub(crate) fn together_in_line(can: &Capabilities) -> When {
    together(can).and(fair(can)).and(wakes(can))
}

fn need(given: bool, otherwise: &'static str) -> When {
    if given { Ok(()) } else { Err(otherwise) }
}
