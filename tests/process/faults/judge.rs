//! From the records of a folder to a verdict: a history for each lock, the checker of the simulation, and a picture.

use std::collections::{BTreeMap, BTreeSet};

use dlock_sim::{End, Event, History, Rule, Violation, What, check_within, draw};

use crate::record::Line;

/// Nothing is late that is told within this time. Times in which a process does not get a core are in its record.
const SLACK: u64 = 300_000_000;

/// A picture shows this time before a violation, and this time after it.
const BEFORE: u64 = 6_000_000_000;
const AFTER: u64 = 2_000_000_000;

/// The verdict on a run.
#[derive(Default)]
pub(crate) struct Verdict {
    /// The broken promises, each with the history of its lock.
    pub(crate) broken: Vec<(Violation, History)>,
    /// So many that the page of promises does not give: of locks that the store had forgotten.
    pub(crate) documented: usize,
    pub(crate) grants: usize,
    pub(crate) writes: usize,
}

impl Verdict {
    /// Whether a promise of this name is broken.
    pub(crate) fn breaks(&self, rule: Rule) -> bool {
        self.broken.iter().any(|(violation, _)| violation.rule == rule)
    }
}

/// Judges the lines of a folder.
pub(crate) fn judge(lines: &[Line]) -> Verdict {
    let mut keys = BTreeMap::new();
    for line in lines {
        if let Line::Saw(Event { call, what: What::Asks { keys: of, .. }, .. }) = line {
            keys.extend(of.iter().map(|key| (*call, *key)));
        }
    }
    let mut verdict = Verdict::default();
    let all: BTreeSet<u32> = keys.values().copied().collect();
    for (number, key) in all.into_iter().enumerate() {
        // Leftovers are reported once.
        let of_key = lines.iter().filter(|line| match line {
            Line::Saw(event) => event.call == 0 || keys.get(&event.call) == Some(&key),
            Line::Forgets { key: of, .. } => of.is_none_or(|of| of == key),
            Line::Left { .. } => number == 0,
            Line::Killed { .. } | Line::Fault { .. } | Line::Over { .. } => true,
            Line::Weighs { .. } => false,
        });
        let history = history(&of_key.collect::<Vec<_>>());
        let violations = check_within(&history, SLACK);
        let mut strict = history.clone();
        strict.events.retain(|event| !matches!(event.what, What::Forgets { .. }));
        verdict.documented += check_within(&strict, SLACK).len().saturating_sub(violations.len());
        let count = |is: fn(&What) -> bool| history.events.iter().filter(|event| is(&event.what)).count();
        verdict.grants += count(|what| matches!(what, What::Begins { .. }));
        verdict.writes += count(|what| matches!(what, What::Writes { .. }));
        verdict.broken.extend(violations.into_iter().map(|violation| (violation, history.clone())));
    }
    verdict
}

/// A call that is not over, as far as it is known.
#[derive(Default)]
struct Open {
    process: u32,
    lease: u64,
    asked: u64,
    token: Option<u64>,
    /// The first belief of the body.
    until: Option<u64>,
    has_begun: bool,
    is_over: bool,
    /// When its last event was.
    last: u64,
}

/// The history of one lock.
fn history(lines: &[&Line]) -> History {
    let mut calls: BTreeMap<u32, Open> = BTreeMap::new();
    let (mut history, mut forgets, mut killed) = (History::default(), Vec::new(), Vec::new());
    for line in lines {
        match line {
            Line::Saw(Event { at, process, call, what }) => {
                let known = calls.entry(*call).or_default();
                match what {
                    What::Asks { terms, .. } => {
                        *known = Open { process: *process, lease: terms.lease, asked: *at, ..Open::default() };
                    }
                    What::Begins { holds } => {
                        (known.token, known.has_begun) = (holds.first().and_then(|hold| hold.token), true);
                    }
                    What::Acts { until } | What::Believes { until } => drop(known.until.get_or_insert(*until)),
                    What::Ends(_) => known.has_begun = false,
                    What::Answers(_) | What::GivenUp => known.is_over = true,
                    _ => {}
                }
                known.last = *at;
                history.add(*at, *process, *call, what.clone());
            }
            Line::Killed { at, process } => killed.push((*at, *process)),
            Line::Forgets { at, process, .. } => forgets.push((*at, *process)),
            Line::Fault { at, text } | Line::Over { at, text } => history.add(*at, 0, 0, What::Note(text.clone())),
            Line::Weighs { .. } => {}
            Line::Left { at, text } => history.add(*at, 0, 0, What::Left(text.clone())),
        }
    }
    for (at, process) in killed {
        for (call, open) in calls.iter().filter(|(id, open)| **id > 0 && open.process == process) {
            // The signal is on its way then, and a lock that ends with a session may be free before it is told that it has arrived.
            let at = at.max(open.last);
            if open.has_begun {
                history.add(at, process, *call, What::Ends(End::Dropped));
            }
            if !open.is_over {
                history.add(at, process, *call, What::GivenUp);
            }
        }
    }
    for (at, process) in forgets {
        // A grant of before has its first lease of before, also if its body began later.
        let before = |call: &&Open| call.asked < at && call.until.is_some_and(|until| until <= at + call.lease);
        let tokens = calls.values().filter(before).filter_map(|call| Some((call.process, call.token?)));
        let ranges: Vec<_> = match process {
            None => tokens.map(|(_, token)| token).max().map(|last| (0, last)).into_iter().collect(),
            Some(of) => tokens.filter(|(process, _)| *process == of).map(|(_, token)| (token, token)).collect(),
        };
        for (from, to) in ranges {
            history.add(at, 0, 0, What::Forgets { key: None, from, to });
        }
    }
    history.events.sort_by_key(|event| event.at);
    history
}

/// The time around a violation as a picture.
pub(crate) fn picture(violation: &Violation, history: &History) -> String {
    let (from, to) = (violation.at.saturating_sub(BEFORE), violation.at + AFTER);
    let time = |at: u64| at.saturating_sub(from);
    let near = history.events.iter().filter(|event| (from..to).contains(&event.at) && event.call > 0);
    let calls: BTreeSet<u32> = near.map(|event| event.call).chain(violation.calls.iter().copied()).collect();
    let mut window = History::default();
    for Event { at, process, call, what } in history.events.iter().filter(|event| event.at < to) {
        let is_near = if *call == 0 { *at >= from } else { calls.contains(call) };
        let mut what = what.clone();
        if let What::Acts { until } | What::Believes { until } | What::Stands { until } = &mut what {
            *until = time(*until);
        }
        if is_near {
            window.add(time(*at), *process, *call, what);
        }
    }
    draw(&window, &[Violation { at: time(violation.at), ..violation.clone() }])
}
