//! The promises to one call, by its own events.

use super::call::Call;
use super::facts::Facts;
use super::periods::another_has_run;
use super::violation::{Rule, Violation};
use crate::history::{End, Failure, Terms, Work};

/// A call has its lock, or its error, this long after the end of its wait: two requests that nobody answers (5 s each), their abandons
/// (1 s each), and a neighbour's turn between them. And it ends this long after its body: two requests of at most 5 s.
const REQUESTS: u64 = 15_000_000_000;

/// `beside`: the calls for its keys.
pub(super) fn check_call<'a>(
    call: &Call<'_>,
    facts: &Facts,
    mut beside: impl Iterator<Item = &'a Call<'a>>,
) -> Vec<Violation> {
    let (end, slack) = (facts.end, facts.slack);
    let mut found = Vec::new();
    let mut violation = |rule, at| found.push(Violation { rule, at, calls: vec![call.id] });
    for (number, (at, until)) in call.acts.iter().enumerate() {
        // A body that was told to go on after a loss does so, but no body begins without its lock.
        if until <= at && (call.terms.cancels || number == 0) {
            violation(Rule::ActsWithoutLock, *at);
            break;
        }
    }
    if let (Some(began), Some(most), None) = (call.begins, call.terms.max_hold, call.terms.joins)
        && call.beliefs.iter().any(|(at, until)| at < until && *until > began + most / 99 * 100 + slack)
    {
        violation(Rule::MaxHold, began + most);
    }
    // A body that goes on after a loss may note it again.
    let last = call.beliefs.iter().find(|(at, until)| until <= at).or(call.beliefs.last());
    if let (Some((at, until)), true) = (last, call.terms.cancels) {
        let told_by = call.awake_at((*until).max(*at));
        let over = call.ends.map_or(end, |(at, _)| at);
        // A body that computes hears of it at its next await.
        if over > told_by.saturating_add(slack) {
            violation(Rule::LossIsTold, told_by);
        }
    }
    for (told, by) in facts.told.iter().filter(|(told, _)| call.is_forgotten_by(told) && call.terms.cancels) {
        let Some(began) = call.begins else { break };
        let told_by = call.awake_at((*by).max(began));
        let over = call.ends.map_or(end, |(at, _)| at);
        if over > told_by.saturating_add(slack) && over > told.at {
            violation(Rule::LossIsTold, told_by);
        }
    }
    if let (Some((answered, Ok(()))), Some((ended, _)), true) = (call.answer, call.ends, call.terms.confirms)
        && facts.forgets.iter().any(|forgotten| call.is_forgotten_by(forgotten) && forgotten.at < ended)
    {
        violation(Rule::OkIsCovered, answered);
    }
    if let Some((answered, Ok(()))) = call.answer
        && let Some((ended, End::Done)) = call.ends
        && call.beliefs.last().is_some_and(|(_, until)| *until < ended)
    {
        violation(Rule::OkIsCovered, ended.min(answered));
    }
    if let Some((at, Ok(()))) = call.answer
        && call.ends.is_none_or(|(_, how)| how != End::Done)
    {
        violation(Rule::OkIsCovered, at);
    }
    let has_lock = call.begins.or(call.is_over_at());
    let begins_by = call.asked.saturating_add(call.terms.waits).saturating_add(REQUESTS);
    if has_lock.unwrap_or(end) > begins_by + call.stood(call.asked, end) {
        violation(Rule::NoHang, begins_by);
    }
    match (call.ends, call.is_over_at()) {
        (_, None) => violation(Rule::NoHang, end),
        (Some((ended, _)), Some(over)) if over > ended + REQUESTS + call.stood(ended, over) => {
            violation(Rule::NoHang, ended + REQUESTS);
        }
        _ => {}
    }
    if !call.takes_in_order() {
        violation(Rule::OrderOfKeys, call.asked);
    }
    if let Some((at, Err(failure))) = call.answer {
        let waited = at - call.asked;
        let is_allowed = match failure {
            Failure::Busy => call.terms.waits == 0 && call.begins.is_none(),
            Failure::WaitTimeout => {
                call.terms.waits > 0 && waited + slack >= call.terms.waits / 100 * 99 && call.begins.is_none()
            }
            Failure::Outage => {
                let Terms { waits, lease, .. } = call.terms;
                let is_short = (1..SHORT).contains(waits) || *lease < SHORT;
                // A neighbour that stands still may have the turn to ask.
                let is_kept = |other: &Call<'_>| other.process == call.process && other.stands_between(call.asked, at);
                call.begins.is_none() && (has_reason(call, facts, at) || is_short || beside.any(is_kept))
            }
            Failure::Lost => has_reason(call, facts, at) || may_be_lost(call, facts),
            // The store has granted it since, and what is passed on begins anew.
            Failure::MaxHold if call.terms.joins.is_some() => true,
            Failure::MaxHold => call.terms.max_hold.is_some_and(|most| at >= call.asked + most / 100 * 99),
            Failure::BodyTimeout => call.terms.limited && call.begins.is_some(),
            Failure::WouldDeadlock => call.terms.inside_itself,
            Failure::ShutDown => facts.shuts_down.get(&call.process).is_some_and(|since| *since <= at),
            Failure::AlreadyRun => call.terms.once_per.is_some_and(|once| another_has_run(call, once, at, beside)),
            Failure::KeyConflict => call.keys.iter().any(|key| facts.mixed.contains(key)),
            Failure::Body => call.begins.is_some(),
            Failure::CommitRefused | Failure::CommitUnknown => call.terms.work.is_some() && call.ends.is_some(),
            Failure::Other => false,
        };
        if !is_allowed {
            violation(Rule::ErrorKind, at);
        }
    }
    if let Some(work) = call.terms.work
        && !work_follows(call, work, facts.settled.iter().any(|(key, token)| call.has(*key, &(*token..=*token))))
    {
        violation(Rule::WorkFollowsResult, call.is_over_at().unwrap_or(end));
    }
    found
}

/// A lease or a wait that is shorter may end during some requests and their answers.
const SHORT: u64 = 1_000_000_000;

/// Whether anything has gone wrong for a call, so that it may fail.
fn has_reason(call: &Call<'_>, facts: &Facts, at: u64) -> bool {
    !facts.is_faultless
        || !facts.restarts.is_empty()
        || facts.shuts_down.contains_key(&call.process)
        || call.stands_between(call.asked, at)
}

/// Whether a hold may be lost although all requests arrive.
fn may_be_lost(call: &Call<'_>, facts: &Facts) -> bool {
    let Terms { renewed, lease, joins, .. } = call.terms;
    let mut ended = facts.forgets.iter().chain(facts.told.iter().map(|(told, _)| told));
    !renewed
        || *lease < SHORT
        || joins.is_some()
        || ended.any(|forgotten| call.is_forgotten_by(forgotten) || call.was_granted(forgotten))
}

/// Whether the work of a body may be final, or undone, after this end of its call.
fn work_follows(call: &Call<'_>, work: Work, is_final: bool) -> bool {
    match (work, call.answer) {
        (Work::Undone | Work::Fails, _) => !is_final,
        (Work::Counts, Some((_, Ok(())))) => is_final,
        (Work::Counts, Some((_, Err(Failure::CommitUnknown)))) => true,
        (Work::Counts, Some((_, Err(_)))) => !is_final,
        // Nobody has heard how it went.
        (Work::Counts, None) => !is_final || call.ends.is_some_and(|(_, how)| how == End::Done),
    }
}
