//! The calls for one key: who has the lock beside whom.

use super::call::Call;
use super::facts::Facts;
use super::violation::{Rule, Violation};
use crate::history::{Granted, Share};

/// Of the calls for one key, in the order in which they began.
pub(super) fn tokens_rise(key: u32, calls: &[&Call<'_>], facts: &Facts) -> Option<Violation> {
    let mut before: Vec<(u64, &Call<'_>)> = Vec::new();
    for call in calls {
        let (at, token) = (call.begins?, call.hold(key).and_then(|hold| hold.token));
        let Some(token) = token else { continue };
        // A grant that the store had forgotten when its body began: see `certain`.
        if facts.forgets.iter().any(|forgotten| call.is_forgotten_by(forgotten) && at >= forgotten.at) {
            continue;
        }
        // Bodies that run beside each other may begin in another order than that of their grants.
        let may_be_later =
            |other: &Call<'_>| !excludes(call.terms.share, other.terms.share) && !other.ended_before(call);
        let higher = |(other, by): &&(u64, &Call<'_>)| token == *other || (token < *other && !may_be_later(by));
        if let Some((_, other)) = before.iter().find(higher) {
            return Some(Violation { rule: Rule::TokensRise, at, calls: vec![other.id, call.id] });
        }
        before.push((token, call));
    }
    None
}

/// Whether holds of these kinds cannot live beside each other, whatever their slots.
fn excludes(one: Share, other: Share) -> bool {
    !matches!((one, other), (Share::Read, Share::Read) | (Share::Permit { .. }, Share::Permit { .. }))
}

/// A time in which a body surely has the lock.
struct Time<'a> {
    from: u64,
    to: u64,
    call: &'a Call<'a>,
    hold: Option<Granted>,
}

impl Time<'_> {
    fn may_be_beside(&self, other: &Self) -> bool {
        let slot = |time: &Time<'_>| time.hold.and_then(|hold| hold.slot);
        match (self.call.terms.share, other.call.terms.share) {
            (Share::Permit { of }, Share::Permit { .. }) => {
                slot(self) != slot(other) && slot(self).is_some_and(|slot| slot < of)
            }
            (one, other) => !excludes(one, other),
        }
    }
}

/// The times in which the body surely has the lock: from each belief to the next one, but not beyond what was believed. A process that
/// gives its belief up before that time does not give the lock away, since the body may run on.
fn certain<'a>(key: u32, call: &'a Call<'a>, facts: &Facts, times: &mut Vec<Time<'a>>) {
    // A store may grant a lock again that it has forgotten, and its page says so. A hold that it prolongs later is not forgotten.
    let forgets =
        facts.forgets.iter().filter(|forgotten| call.is_forgotten_by(forgotten)).map(|forgotten| forgotten.at);
    let forgotten_at = |until: u64| forgets.clone().find(|at| until <= at.saturating_add(call.terms.lease));
    let (over, hold) = (call.ends.map_or(u64::MAX, |(at, _)| at), call.hold(key));
    let mut beliefs = call.beliefs.iter().filter(|(at, until)| at < until).peekable();
    while let Some((at, until)) = beliefs.next() {
        let next = beliefs.peek().map_or(u64::MAX, |(at, _)| *at);
        let forgotten = forgotten_at(*until).unwrap_or(u64::MAX);
        let (from, to) = (*at, (*until).min(next).min(over).min(forgotten));
        if from < to {
            times.push(Time { from, to, call, hold });
        }
    }
}

pub(super) fn one_believer<'a>(key: u32, calls: &[&'a Call<'a>], facts: &Facts) -> Option<Violation> {
    let mut times = Vec::new();
    calls.iter().for_each(|call| certain(key, call, facts, &mut times));
    times.sort_unstable_by_key(|time| (time.from, time.to, time.call.id));
    let mut beside: Vec<&Time<'_>> = Vec::new();
    for time in &times {
        beside.retain(|other| other.to > time.from);
        if let Some(other) = beside.iter().find(|other| other.call.id != time.call.id && !time.may_be_beside(other)) {
            return Some(Violation {
                rule: Rule::OneBeliever,
                at: time.from,
                calls: vec![other.call.id, time.call.id],
            });
        }
        beside.push(time);
    }
    None
}
