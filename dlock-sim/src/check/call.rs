//! One call: all that its own events tell.

use std::collections::BTreeSet;

use super::facts::Forgotten;
use crate::history::{End, Failure, Granted, Terms, What};

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
    pub(super) acts: Vec<(u64, u64)>,
    /// The same also for times at which it did not act.
    pub(super) beliefs: Vec<(u64, u64)>,
    pub(super) ends: Option<(u64, End)>,
    pub(super) answer: Option<(u64, Result<(), Failure>)>,
    pub(super) given_up: Option<u64>,
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

    /// Whether the store has forgotten a hold of it.
    pub(super) fn is_forgotten_by(&self, forgotten: &Forgotten) -> bool {
        let is_of = |key: &u32| forgotten.key.is_none_or(|own| own == *key) && self.has(*key, &forgotten.tokens);
        self.keys.iter().any(is_of)
    }

    /// Whether the store has forgotten a grant to it. Its body may not have begun.
    pub(super) fn was_granted(&self, forgotten: &Forgotten) -> bool {
        let is_of =
            |(key, token): &(u32, u64)| forgotten.key.is_none_or(|of| of == *key) && forgotten.tokens.contains(token);
        self.tokens.iter().any(is_of)
    }

    /// The instant, or the end of the time in which the call stood still then.
    pub(super) fn awake_at(&self, mut instant: u64) -> u64 {
        // One stand may begin within another one.
        loop {
            let before = instant;
            for (from, to) in &self.stands {
                if *from <= instant && instant < *to {
                    instant = *to;
                }
            }
            if instant == before {
                return instant;
            }
        }
    }

    /// How long the call stood still between these instants, at most.
    pub(super) fn stood(&self, from: u64, to: u64) -> u64 {
        let within = |(begin, end): &(u64, u64)| (*end).min(to).saturating_sub((*begin).max(from));
        self.stands.iter().map(within).sum()
    }

    /// Whether the store gave it a higher key only after all lower ones. A hold that is passed on in a process is no grant.
    pub(super) fn takes_in_order(&self) -> bool {
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

    pub(super) fn is_over_at(&self) -> Option<u64> {
        self.answer.map(|(at, _)| at).into_iter().chain(self.given_up).min()
    }
}
