//! Calls that run at most once in a period, and keys that stay taken for a time.

use super::call::Call;
use super::facts::Facts;
use super::violation::{Rule, Violation};
use crate::history::Period;

/// Clocks differ by up to this many thousandths.
const DRIFT: u64 = 10;

/// Whether the store may have started a run of another call, of the period in which this call asks or of a later one.
pub(super) fn another_has_run<'a>(
    call: &Call<'_>,
    once: Period,
    at: u64,
    beside: impl Iterator<Item = &'a Call<'a>>,
) -> bool {
    let mut others = beside.filter(|other| other.id != call.id && other.terms.once_per.is_some());
    others
        .any(|other| other.grants.iter().any(|(granted, _)| *granted <= at && once.of(*granted) >= once.of(call.asked)))
}

/// Two bodies that began for one boundary, although the store has not lost its memory between them.
pub(super) fn runs_once(key: u32, calls: &[&Call<'_>], facts: &Facts) -> Option<Violation> {
    for first in calls {
        for second in calls.iter().filter(|call| call.id != first.id) {
            let Some((once, boundary)) = boundary(second) else { continue };
            let (Some(began), Some(begins)) = (first.begins, second.begins) else { continue };
            if boundary_of(first) != Some(boundary) || began > begins {
                continue;
            }
            let is_forgotten = facts.lost_memory.iter().any(|lost| (first.asked..=begins).contains(lost));
            let has_ended = |(at, of, token): &(u64, u32, u64)| {
                *of == key && *at < second.asked && first.has(key, &(*token..=*token))
            };
            let may_run_again = once.rerun && !facts.ended_runs.iter().any(has_ended);
            if !is_forgotten && !may_run_again {
                return Some(Violation { rule: Rule::OncePerPeriod, at: begins, calls: vec![first.id, second.id] });
            }
        }
    }
    None
}

/// The boundary of its run, if it is certain.
fn boundary(call: &Call<'_>) -> Option<(Period, u64)> {
    let once = call.terms.once_per?;
    let boundary = once.of(call.asked);
    (boundary == once.of(call.begins?)).then_some((once, boundary))
}

fn boundary_of(call: &Call<'_>) -> Option<u64> {
    boundary(call).map(|(_, boundary)| boundary)
}

/// A grant to another call before the `min_hold` of a body has passed.
pub(super) fn keeps_min_hold(key: u32, calls: &[&Call<'_>], facts: &Facts) -> Option<Violation> {
    let of_key =
        |call: &Call<'_>| call.grants.iter().filter(move |(_, of)| *of == key).map(|(at, _)| *at).collect::<Vec<_>>();
    for first in calls.iter().filter(|call| call.terms.min_hold > 0 && call.begins.is_some()) {
        let Some(granted) = of_key(first).into_iter().rfind(|at| first.begins.is_some_and(|begins| *at <= begins))
        else {
            continue;
        };
        let free_at = granted + first.terms.min_hold / 1000 * (1000 - DRIFT);
        let is_forgotten = facts.lost_memory.iter().any(|lost| (granted..=free_at).contains(lost))
            || facts.forgets.iter().any(|forgotten| first.is_forgotten_by(forgotten));
        for second in calls.iter().filter(|call| call.id != first.id && !is_forgotten) {
            if let Some(at) = of_key(second).into_iter().find(|at| granted < *at && *at < free_at) {
                return Some(Violation { rule: Rule::MinHold, at, calls: vec![first.id, second.id] });
            }
        }
    }
    None
}
