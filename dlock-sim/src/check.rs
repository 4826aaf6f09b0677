//! The checker: says which promises a history breaks. It knows events alone: no engine, no store, no simulation.

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{End, Event, Failure, History, Terms, What, seconds};

/// In a simulation so much later than promised is not told from in time: the events of one instant have an order.
const SLACK: u64 = 1_000_000;

/// A call has its lock, or its error, this long after the end of its wait: two requests that nobody answers (5 s each), their abandons
/// (1 s each), and a neighbour's turn between them. And it ends this long after its body: two requests of at most 5 s.
const REQUESTS: u64 = 15_000_000_000;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub rule: Rule,
    /// When it was seen.
    pub at: u64,
    /// The calls that take part in it.
    pub calls: Vec<u32>,
}

/// The promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Two bodies believe at one moment that they have one lock.
    OneBeliever,
    /// A body acts although its process knows that it has no lock.
    ActsWithoutLock,
    /// A body does not hear of the loss of its lock by its deadline.
    LossIsTold,
    /// A call succeeds although its lock did not last as long as its body.
    OkIsCovered,
    /// A later grant has no higher token.
    TokensRise,
    /// A write to a resource that compares tokens overwrites one that its body had not read.
    FencedWrites,
    /// A call gets neither its lock nor an error in time, or does not come to its end.
    NoHang,
    /// A call fails in a way that nothing allows.
    ErrorKind,
    /// Something is left at the end that nobody wants.
    NothingIsLeft,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} s, calls {:?}", self.rule, seconds(self.at), self.calls)
    }
}

/// One call, as its events tell it.
struct Call<'a> {
    id: u32,
    process: u32,
    key: u32,
    terms: &'a Terms,
    asked: u64,
    begins: Option<(u64, Option<u64>)>,
    /// When the body acted, and until when it believed then.
    acts: Vec<(u64, u64)>,
    /// The same also for times at which it did not act.
    beliefs: Vec<(u64, u64)>,
    ends: Option<(u64, End)>,
    answer: Option<(u64, Result<(), Failure>)>,
    given_up: Option<u64>,
    stands: Vec<(u64, u64)>,
}

/// The promises that a history breaks, the first one first.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    check_within(history, SLACK)
}

/// The same for a machine on which everything may happen so many nanoseconds late.
#[must_use]
pub fn check_within(history: &History, slack: u64) -> Vec<Violation> {
    let mut calls: BTreeMap<u32, Call<'_>> = BTreeMap::new();
    let (mut stands, mut forgets, mut shuts_down) = (Vec::new(), Vec::new(), BTreeMap::new());
    let (mut found, mut values) = (Vec::new(), BTreeMap::new());
    for Event { at, process, call, what } in &history.events {
        let (at, violation) = (*at, |rule| Violation { rule, at: *at, calls: vec![*call] });
        match what {
            What::Asks { key, terms } => {
                let asks = Call {
                    id: *call,
                    process: *process,
                    key: *key,
                    terms,
                    asked: at,
                    begins: None,
                    acts: Vec::new(),
                    beliefs: Vec::new(),
                    ends: None,
                    answer: None,
                    given_up: None,
                    stands: Vec::new(),
                };
                calls.insert(*call, asks);
                continue;
            }
            What::Stands { until } if *call == 0 => stands.push((*process, at, *until)),
            What::Forgets { token } => forgets.push((at, *token)),
            What::ShutsDown => {
                shuts_down.entry(*process).or_insert(at);
            }
            What::Left(_) => found.push(violation(Rule::NothingIsLeft)),
            _ => {}
        }
        let Some(call) = calls.get_mut(call) else { continue };
        match what {
            What::Begins { token } => call.begins = Some((at, *token)),
            What::Acts { until } => {
                call.acts.push((at, *until));
                call.beliefs.push((at, *until));
            }
            What::Believes { until } => call.beliefs.push((at, *until)),
            What::Ends(end) => call.ends = Some((at, *end)),
            What::Answers(answer) => call.answer = Some((at, *answer)),
            What::GivenUp => call.given_up = Some(at),
            What::Stands { until } => call.stands.push((at, *until)),
            What::Writes { read, wrote } => {
                // A resource that nobody has written to has the value zero.
                let stood_there = values.insert(call.key, *wrote).unwrap_or(0);
                if stood_there != *read {
                    found.push(violation(Rule::FencedWrites));
                }
            }
            _ => {}
        }
    }
    for call in calls.values_mut() {
        call.stands
            .extend(stands.iter().filter(|(process, ..)| *process == call.process).map(|(_, from, to)| (*from, *to)));
    }
    let end = history.events.last().map_or(0, |event| event.at);
    for call in calls.values() {
        found.extend(check_call(call, end, shuts_down.get(&call.process).copied(), slack));
    }
    let mut by_key: BTreeMap<u32, Vec<&Call<'_>>> = BTreeMap::new();
    for call in calls.values().filter(|call| call.begins.is_some()) {
        by_key.entry(call.key).or_default().push(call);
    }
    for calls in by_key.values_mut() {
        calls.sort_by_key(|call| call.begins);
        found.extend(tokens_rise(calls, &forgets));
        found.extend(one_believer(calls, &forgets));
    }
    found.sort_by_key(|violation| (violation.at, violation.rule));
    found
}

impl Call<'_> {
    /// The instant, or the end of the time in which the call stood still then.
    fn awake_at(&self, mut instant: u64) -> u64 {
        // One stand may begin within another one.
        for _ in 0..self.stands.len() {
            for (from, to) in &self.stands {
                if *from <= instant && instant < *to {
                    instant = *to;
                }
            }
        }
        instant
    }

    /// How long the call stood still between these instants, at most.
    fn stood(&self, from: u64, to: u64) -> u64 {
        let within = |(begin, end): &(u64, u64)| (*end).min(to).saturating_sub((*begin).max(from));
        self.stands.iter().map(within).sum()
    }

    fn is_over_at(&self) -> Option<u64> {
        self.answer.map(|(at, _)| at).into_iter().chain(self.given_up).min()
    }
}

fn check_call(call: &Call<'_>, end: u64, shuts_down: Option<u64>, slack: u64) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut violation = |rule, at| found.push(Violation { rule, at, calls: vec![call.id] });
    for (number, (at, until)) in call.acts.iter().enumerate() {
        // A body that was told to go on after a loss does so, but no body begins without its lock.
        if until <= at && (call.terms.cancels || number == 0) {
            violation(Rule::ActsWithoutLock, *at);
            break;
        }
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
    if let (Some((_, Ok(()))), Some((ended, End::Done))) = (call.answer, call.ends)
        && call.beliefs.last().is_some_and(|(_, until)| *until < ended)
    {
        violation(Rule::OkIsCovered, ended);
    }
    if let Some((at, Ok(()))) = call.answer
        && call.ends.is_none_or(|(_, how)| how != End::Done)
    {
        violation(Rule::OkIsCovered, at);
    }
    let has_lock = call.begins.map(|(at, _)| at).or(call.is_over_at());
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
    if let Some((at, Err(failure))) = call.answer {
        let waited = at - call.asked;
        let is_allowed = match failure {
            Failure::Busy => call.terms.waits == 0 && call.begins.is_none(),
            Failure::WaitTimeout => {
                call.terms.waits > 0 && waited + slack >= call.terms.waits / 100 * 99 && call.begins.is_none()
            }
            Failure::Outage => call.begins.is_none(),
            Failure::Lost => true,
            Failure::BodyTimeout => call.terms.limited && call.begins.is_some(),
            Failure::WouldDeadlock => call.terms.inside_itself,
            Failure::ShutDown => shuts_down.is_some_and(|since| since <= at),
            Failure::Other => false,
        };
        if !is_allowed {
            violation(Rule::ErrorKind, at);
        }
    }
    found
}

/// Of the calls for one key, in the order in which they began.
fn tokens_rise(calls: &[&Call<'_>], forgets: &[(u64, u64)]) -> Option<Violation> {
    let mut highest = None;
    for call in calls {
        let (at, token) = call.begins?;
        let Some(token) = token else { continue };
        // A grant that the store had forgotten when its body began: see `certain`.
        if forgets.iter().any(|(forgotten, last)| token <= *last && at >= *forgotten) {
            continue;
        }
        if let Some((before, id)) = highest
            && token <= before
        {
            return Some(Violation { rule: Rule::TokensRise, at, calls: vec![id, call.id] });
        }
        highest = Some((token, call.id));
    }
    None
}

/// The times in which the body surely has the lock: from each belief to the next one, but not beyond what was believed. A process that
/// gives its belief up before that time does not give the lock away, since the body may run on.
fn certain(call: &Call<'_>, forgets: &[(u64, u64)], times: &mut Vec<(u64, u64, u32)>) {
    let token = call.begins.and_then(|(_, token)| token).unwrap_or(0);
    // A store may grant a lock again that it has forgotten, and its page says so. A hold that it prolongs later is not forgotten.
    let forgets = forgets.iter().filter(|(_, last)| token <= *last);
    let forgotten_at = |until: u64| forgets.clone().find(|(at, _)| until <= at.saturating_add(call.terms.lease));
    let over = call.ends.map_or(u64::MAX, |(at, _)| at);
    let mut beliefs = call.beliefs.iter().filter(|(at, until)| at < until).peekable();
    while let Some((at, until)) = beliefs.next() {
        let next = beliefs.peek().map_or(u64::MAX, |(at, _)| *at);
        let forgotten = forgotten_at(*until).map_or(u64::MAX, |(at, _)| *at);
        let to = (*until).min(next).min(over).min(forgotten);
        if *at < to {
            times.push((*at, to, call.id));
        }
    }
}

fn one_believer(calls: &[&Call<'_>], forgets: &[(u64, u64)]) -> Option<Violation> {
    let mut times = Vec::new();
    calls.iter().for_each(|call| certain(call, forgets, &mut times));
    times.sort_unstable();
    let mut last: Option<(u64, u32)> = None;
    for (from, to, id) in times {
        if let Some((end, other)) = last
            && other != id
            && from < end
        {
            return Some(Violation { rule: Rule::OneBeliever, at: from, calls: vec![other, id] });
        }
        if last.is_none_or(|(end, _)| end < to) {
            last = Some((to, id));
        }
    }
    None
}
