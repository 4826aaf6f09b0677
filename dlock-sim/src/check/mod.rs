//! The checker: says which promises a history breaks. It knows events alone: no engine, no store, no simulation.

mod call;
mod exclusion;
mod facts;
mod one_call;
mod periods;
mod violation;
mod waiting;

use std::collections::BTreeMap;

use self::call::Call;
use self::exclusion::{one_believer, tokens_rise};
use self::facts::{Facts, Forgotten};
use self::one_call::check_call;
use self::periods::{keeps_min_hold, runs_once};
pub use self::violation::{Rule, Violation};
use self::waiting::{served_in_order, waits_for_somebody};
use crate::history::{Event, History, Share, What};

/// In a simulation, what is this late counts as in time: the events of one instant have an order.
const SLACK: u64 = 1_000_000;

/// The promises that a history breaks, the first one first.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    check_within(history, SLACK)
}

/// The same for a machine on which everything may happen this many nanoseconds late.
#[must_use]
pub fn check_within(history: &History, slack: u64) -> Vec<Violation> {
    let mut calls: BTreeMap<u32, Call<'_>> = BTreeMap::new();
    let mut facts = Facts { end: history.events.last().map_or(0, |event| event.at), slack, ..Facts::default() };
    let mut values = BTreeMap::new();
    let (mut stands, mut shares) = (Vec::new(), BTreeMap::<u32, Share>::new());
    let mut found = Vec::new();
    for Event { at, process, call, what } in &history.events {
        let at = *at;
        let forgotten = |key, from, to| Forgotten { at, key, tokens: from..=to };
        match what {
            What::Asks { keys, terms } => {
                for key in keys {
                    let first = *shares.entry(*key).or_insert(terms.share);
                    if !first.mixes_with(terms.share) {
                        facts.mixed.insert(*key);
                    }
                }
                calls.insert(*call, Call::new(*call, *process, keys, terms, at));
                continue;
            }
            What::Stands { until } if *call == 0 => stands.push((*process, at, *until)),
            What::Forgets { key, from, to } => facts.forgets.push(forgotten(*key, *from, *to)),
            What::EndIsTold { key, from, to, by } => facts.told.push((forgotten(Some(*key), *from, *to), *by)),
            What::Settles { key, token } => {
                facts.settled.insert((*key, *token));
            }
            What::Keeps { key, token } => facts.kept.push((at, *key, *token)),
            What::EndsRun { key, token } => facts.ended_runs.push((at, *key, *token)),
            What::Faultless => facts.is_faultless = true,
            What::Restarts { forgets, .. } => {
                facts.restarts.push(at);
                facts.lost_memory.extend(forgets.then_some(at));
            }
            What::ShutsDown => {
                facts.shuts_down.entry(*process).or_insert(at);
            }
            What::Left(_) => found.push(Violation { rule: Rule::NothingIsLeft, at, calls: vec![*call] }),
            What::Writes { read, wrote } => {
                let key = calls.get(call).and_then(|call| call.keys.first());
                // A resource that nobody has written to has the value zero.
                if values.insert(key.copied(), *wrote).unwrap_or(0) != *read {
                    found.push(Violation { rule: Rule::FencedWrites, at, calls: vec![*call] });
                }
            }
            _ => {}
        }
        if let Some(call) = calls.get_mut(call) {
            call.note(at, what);
        }
    }
    for call in calls.values_mut() {
        let of_process = stands.iter().filter(|(process, ..)| *process == call.process);
        call.stands.extend(of_process.map(|(_, from, to)| (*from, *to)));
    }
    let mut by_key: BTreeMap<u32, Vec<&Call<'_>>> = BTreeMap::new();
    // A call that has joined a hold has none of its own.
    let has_joined = |call: &Call<'_>| {
        let outer = call.terms.joins.and_then(|outer| calls.get(&outer));
        outer.is_some_and(|outer| call.begins.is_some() && call.holds == outer.holds)
    };
    for call in calls.values().filter(|call| !has_joined(call)) {
        call.keys.iter().for_each(|key| by_key.entry(*key).or_default().push(call));
    }
    for call in calls.values() {
        let beside = call.keys.iter().filter_map(|key| by_key.get(key)).flatten().copied();
        found.extend(check_call(call, &facts, beside));
    }
    for (at, key, token) in &facts.kept {
        if !calls.values().any(|call| call.has(*key, &(*token..=*token))) {
            // Nobody has had the lock that it was kept for.
            found.push(Violation { rule: Rule::MinHold, at: *at, calls: Vec::new() });
        }
    }
    for (key, calls) in &mut by_key {
        found.extend(keeps_min_hold(*key, calls, &facts));
        found.extend(served_in_order(*key, calls, &facts));
        found.extend(waits_for_somebody(*key, calls, &facts));
        calls.retain(|call| call.begins.is_some());
        found.extend(runs_once(*key, calls, &facts));
        calls.sort_by_key(|call| call.begins);
        found.extend(tokens_rise(*key, calls, &facts));
        found.extend(one_believer(*key, calls, &facts));
    }
    found.sort_by_key(|violation| (violation.at, violation.rule));
    found
}
