//! One call: all that its own events tell.

use std::collections::BTreeSet;

use super::periods::another_has_run;
use super::{Facts, Rule, Violation};
use crate::history::{End, Failure, Granted, Terms, What, Work};

/// A call has its lock, or its error, this long after the end of its wait: two requests that nobody answers (5 s each), their abandons
/// (1 s each), and a neighbour's turn between them. And it ends this long after its body: two requests of at most 5 s.
const REQUESTS: u64 = 15_000_000_000;

/// One call, as its events tell it.
pub(super) struct Call<'a> {
    pub(super) id: u32,
    pub(super) process: u32,
    /// The lowest first.
    pub(super) keys: &'a [u32],
    pub(super) terms: &'a Terms,
    pub(super) asked: u64,
    pub(super) begins: Option<u64>,
    pub(super) holds: &'a [Granted],
    /// The store's grants, in their order: when, and of which key.
    pub(super) grants: Vec<(u64, u32)>,
    /// The tokens of these grants.
    tokens: BTreeSet<(u32, u64)>,
    /// The places in the store's queue: since when, and of which key.
    queued: Vec<(u64, u32)>,
    /// When the body acted, and until when it believed then.
    acts: Vec<(u64, u64)>,
    /// The same also for times at which it did not act.
    pub(super) beliefs: Vec<(u64, u64)>,
    pub(super) ends: Option<(u64, End)>,
    pub(super) answer: Option<(u64, Result<(), Failure>)>,
    given_up: Option<u64>,
    pub(super) stands: Vec<(u64, u64)>,
}

impl<'a> Call<'a> {
    pub(super) fn new(id: u32, process: u32, keys: &'a [u32], terms: &'a Terms, asked: u64) -> Self {
        Self {
            id,
            process,
            keys,
            terms,
            asked,
            begins: None,
            holds: &[],
            grants: Vec::new(),
            tokens: BTreeSet::new(),
            queued: Vec::new(),
            acts: Vec::new(),
            beliefs: Vec::new(),
            ends: None,
            answer: None,
            given_up: None,
            stands: Vec::new(),
        }
    }

    /// Notes one of its events.
    pub(super) fn note(&mut self, at: u64, what: &'a What) {
        match what {
            What::Begins { holds } => (self.begins, self.holds) = (Some(at), holds),
            // A request that comes twice, or late, is answered by the hold that its owner has already. That is no grant.
            What::Grants { key, token } if !self.tokens.insert((*key, *token)) => {}
            What::Grants { key, .. } => self.grants.push((at, *key)),
            What::Queues { key } => self.queued.push((at, *key)),
            What::Acts { until } => {
                self.acts.push((at, *until));
                self.beliefs.push((at, *until));
            }
            What::Believes { until } => self.beliefs.push((at, *until)),
            What::Ends(end) => self.ends = Some((at, *end)),
            What::Answers(answer) => self.answer = Some((at, *answer)),
            What::GivenUp => self.given_up = Some(at),
            What::Stands { until } => self.stands.push((at, *until)),
            _ => {}
        }
    }

    /// Its hold of a key.
    pub(super) fn hold(&self, key: u32) -> Option<Granted> {
        let at = self.keys.iter().position(|own| *own == key)?;
        self.holds.get(at).copied()
    }

    /// Whether it has a hold with one of these tokens.
    pub(super) fn has(&self, key: u32, tokens: &std::ops::RangeInclusive<u64>) -> bool {
        self.hold(key).and_then(|hold| hold.token).is_some_and(|token| tokens.contains(&token))
    }

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

    /// Whether the store gave it a higher key only after all lower ones. A hold that is passed on in a process is no grant.
    fn takes_in_order(&self) -> bool {
        let first = |key: &u32| self.grants.iter().position(|(_, granted)| granted == key);
        self.keys.iter().filter_map(first).is_sorted()
    }

    /// Since when it has a place in the store's queue.
    pub(super) fn queued(&self, key: u32) -> Option<u64> {
        self.queued.iter().find(|(_, of)| *of == key).map(|(at, _)| *at)
    }

    /// Whether it waits at this instant.
    pub(super) fn waits_at(&self, instant: u64) -> bool {
        let ends = self.asked + self.terms.waits / 100 * 99;
        (self.asked..ends).contains(&instant) && self.begins.or(self.is_over_at()).is_none_or(|at| at > instant)
    }

    /// Whether its process, or its task, has stood still between these instants.
    pub(super) fn stands_between(&self, from: u64, to: u64) -> bool {
        self.stood(from, to) > 0
    }

    /// From the store's first grant until its end.
    pub(super) fn has_lock(&self, key: u32) -> Option<(u64, u64)> {
        let (granted, _) = self.grants.iter().find(|(_, of)| *of == key)?;
        Some((*granted, self.is_over_at().unwrap_or(u64::MAX)))
    }

    /// Whether its body was over before another call asked.
    pub(super) fn ended_before(&self, other: &Self) -> bool {
        self.ends.is_some_and(|(at, _)| at < other.asked)
    }

    fn is_over_at(&self) -> Option<u64> {
        self.answer.map(|(at, _)| at).into_iter().chain(self.given_up).min()
    }
}

/// `beside`: the calls for its keys.
pub(super) fn check_call<'a>(
    call: &Call<'_>,
    facts: &Facts,
    beside: impl Iterator<Item = &'a Call<'a>>,
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
    for (told, by) in facts.told.iter().filter(|(told, _)| told.concerns(call) && call.terms.cancels) {
        let Some(began) = call.begins else { break };
        let told_by = call.awake_at((*by).max(began));
        let over = call.ends.map_or(end, |(at, _)| at);
        if over > told_by.saturating_add(slack) && over > told.at {
            violation(Rule::LossIsTold, told_by);
        }
    }
    if let (Some((answered, Ok(()))), Some((ended, _)), true) = (call.answer, call.ends, call.terms.confirms)
        && facts.forgets.iter().any(|forgotten| forgotten.concerns(call) && forgotten.at < ended)
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
            Failure::Outage => call.begins.is_none(),
            Failure::Lost => true,
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
