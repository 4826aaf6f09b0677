//! The waits of calls: in their order where that is promised, and not for a lock that nobody has.

use super::call::Call;
use super::facts::Facts;
use super::violation::{Rule, Violation};
use crate::history::{Failure, Share};

/// A caller of a history without faults has a place in the store's queue this long after it has asked: some neighbours ask before it.
const QUEUED_WITHIN: u64 = 1_000_000_000;

/// A waiter takes a free lock within this time. The longest pause between two looks is 5 s, and a neighbour that is not polled loses
/// its turn after 7 s.
const TAKEN_WITHIN: u64 = 15_000_000_000;

/// A fair call that has its lock before another one that was in the queue before it had asked.
pub(super) fn served_in_order(key: u32, calls: &[&Call<'_>], facts: &Facts) -> Option<Violation> {
    // One that runs once in a period leaves the queue when another one has run.
    let is_fair =
        |call: &&&Call<'_>| call.terms.fair && call.terms.share == Share::Exclusive && call.terms.once_per.is_none();
    for second in calls.iter().filter(is_fair) {
        let Some(begins) = second.begins else { continue };
        for first in calls.iter().filter(is_fair).filter(|first| first.asked < second.asked) {
            let by = first.asked + QUEUED_WITHIN;
            // A neighbour that is not polled keeps it from asking.
            let is_kept =
                calls.iter().any(|call| call.process == first.process && call.stands_between(first.asked, by));
            let by_now =
                (facts.is_faultless && facts.restarts.is_empty() && !is_kept && first.keys == [key]).then_some(by);
            let queued = first.queued(key).or(by_now).filter(|_| first.terms.waits > 0);
            let waits = queued.is_some_and(|queued| queued < second.asked) && first.waits_at(begins);
            // The store served it, even if the answer was lost. So a grant counts as its turn.
            let was_granted = first.grants.iter().any(|(at, of)| *of == key && *at <= begins);
            let is_hindered = first.stands_between(first.asked, begins)
                || facts.restarts.iter().any(|at| (first.asked..=begins).contains(at))
                || facts.shuts_down.contains_key(&first.process);
            if waits && !was_granted && !is_hindered {
                return Some(Violation { rule: Rule::InOrder, at: begins, calls: vec![first.id, second.id] });
            }
        }
    }
    None
}

/// A call whose wait ran out although nobody has had the lock for long.
pub(super) fn waits_for_somebody(key: u32, calls: &[&Call<'_>], facts: &Facts) -> Option<Violation> {
    let is_hindered = |call: &&Call<'_>| call.stands_between(0, facts.end) || call.terms.min_hold > 0;
    if !facts.is_faultless
        || !facts.restarts.is_empty()
        || !facts.shuts_down.is_empty()
        || calls.iter().any(is_hindered)
    {
        return None;
    }
    for call in calls.iter().filter(|call| call.keys == [key] && call.terms.waits > TAKEN_WITHIN) {
        let Some((failed, Err(Failure::WaitTimeout))) = call.answer else { continue };
        let others = calls.iter().filter(|other| other.id != call.id);
        let mut busy: Vec<_> = others.filter_map(|other| other.has_lock(key)).collect();
        busy.push((failed, failed));
        busy.sort_unstable();
        let mut free_since = call.asked;
        for (from, to) in busy {
            if from.min(failed) > free_since + TAKEN_WITHIN {
                return Some(Violation { rule: Rule::NoHang, at: failed, calls: vec![call.id] });
            }
            free_since = free_since.max(to);
        }
    }
    None
}
