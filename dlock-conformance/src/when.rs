//! Which promises a store gives: all branches of the suite on the profile and the powers.

use dlock_contract::{Backend, Batch, Durability, Expiry, Fencing, RunsOn, WakeStyle};

type When = Result<(), &'static str>;

pub(crate) fn always(_: &dyn Backend) -> When {
    Ok(())
}

pub(crate) fn leases(store: &dyn Backend) -> When {
    need(store.profile().expiry == Expiry::Lease, "expiry: Session")
}

pub(crate) fn sessions(store: &dyn Backend) -> When {
    need(matches!(store.profile().expiry, Expiry::Session { .. }), "expiry: Lease")
}

pub(crate) fn fences(store: &dyn Backend) -> When {
    need(store.profile().fencing != Fencing::None, "fencing: None")
}

pub(crate) fn durable(store: &dyn Backend) -> When {
    need(store.profile().durability >= Durability::Node, "durability: Memory")
}

pub(crate) fn fair(store: &dyn Backend) -> When {
    need(store.profile().fair, "fair: false")
}

pub(crate) fn takes_turns(store: &dyn Backend) -> When {
    fair(store).or(need(store.profile().holds_in_a_row.is_some(), "fair: false, holds_in_a_row: None"))
}

pub(crate) fn wakes(store: &dyn Backend) -> When {
    need(!matches!(store.profile().wake, WakeStyle::Poll { .. }), "wake: Poll")
}

pub(crate) fn grants(store: &dyn Backend) -> When {
    need(store.profile().wake == WakeStyle::Grant, "wake: not Grant")
}

pub(crate) fn many_runtimes(store: &dyn Backend) -> When {
    need(store.profile().runs_on == RunsOn::Caller, "runs_on: OwnThread")
}

pub(crate) fn modes(store: &dyn Backend) -> When {
    let can = store.profile();
    need(can.read_write || can.permits, "read_write, permits: false")
}

pub(crate) fn modes_with_fences(store: &dyn Backend) -> When {
    modes(store).and(fences(store))
}

pub(crate) fn readers(store: &dyn Backend) -> When {
    need(store.profile().read_write, "read_write: false")
}

pub(crate) fn readers_in_order(store: &dyn Backend) -> When {
    readers(store).and(fair(store))
}

pub(crate) fn permits(store: &dyn Backend) -> When {
    need(store.profile().permits, "permits: false")
}

pub(crate) fn keeps(store: &dyn Backend) -> When {
    need(store.keeps().is_some(), "keeps: None")
}

pub(crate) fn keeps_permits(store: &dyn Backend) -> When {
    keeps(store).and(permits(store))
}

pub(crate) fn settles(store: &dyn Backend) -> When {
    need(store.settle().is_some(), "settle: None")
}

pub(crate) fn circles(store: &dyn Backend) -> When {
    settles(store).and(wakes(store))
}

pub(crate) fn periods(store: &dyn Backend) -> When {
    need(store.periods().is_some(), "periods: None")
}

pub(crate) fn cohorts(store: &dyn Backend) -> When {
    need(store.tokens().is_some(), "tokens: None")
}

pub(crate) fn cohorts_in_line(store: &dyn Backend) -> When {
    cohorts(store).and(wakes(store))
}

pub(crate) fn carries(store: &dyn Backend) -> When {
    need(store.exchange().is_some(), "exchange: None").and(grants(store))
}

pub(crate) fn together(store: &dyn Backend) -> When {
    need(store.batch().is_some_and(Batch::takes_any_keys), "batch: None, or not for any keys")
}

pub(crate) fn together_in_line(store: &dyn Backend) -> When {
    together(store).and(fair(store)).and(wakes(store))
}

fn need(given: bool, otherwise: &'static str) -> When {
    if given { Ok(()) } else { Err(otherwise) }
}
