//! The last minutes: what the locks of this process did, and who was seen with which lock.
//!
//! Events name a lock and the template of its key. The keys themselves come from the looks of open pages at the stores.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock::{Event, GrantWay, Label, Observer, OncePer};
use serde_json::{Value, json};

use crate::seen::{SeenLock, now_ms};

/// The activity of a lock is counted for each such time.
const CELL_MS: u64 = 5000;

/// The number of cells: five minutes.
const CELL_COUNT: u64 = 60;

/// The most locks that are counted by name; further ones are counted together. A name is never forgotten, or a hold
/// could end under another name than it began.
const MOST_NAMES: usize = 500;

/// The number of the busiest locks that the page shows.
const MOST_TOLD: usize = 40;

/// The name of all further locks.
const OTHER: &str = "other";

/// A wait for a lock that is longer than this is one that somebody may want to see.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// The last losses and failures.
const MOST_TROUBLE: usize = 50;

/// The most holds that are remembered.
const MOST_SEEN: usize = 300;

/// The most elections, and the most tasks without an annotated function, that the page looks at.
const MOST_LOOKED_AT: usize = 50;

#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the lock's name and its backend.
    names: HashMap<(Box<str>, Box<str>), Name>,
    trouble: VecDeque<Trouble>,
    /// By store, key, and hold id or place.
    seen: HashMap<(String, String, String), Seen>,
    /// By backend and name: those in which this process is a candidate.
    elections: BTreeSet<(String, String)>,
    /// By backend and name: the locks that this process takes with `once_per`.
    tasks: BTreeMap<(String, String), Task>,
}

/// A lock that is taken once in each period.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) template: String,
    pub(crate) once_per: OncePer,
}

/// The activity of one lock of this process.
#[derive(Debug, Default)]
struct Name {
    template: Box<str>,
    waiting: u64,
    held: u64,
    cells: VecDeque<Cell>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    at: u64,
    acquired: u64,
    /// Of those, the ones that came from another holder, and not from a request to the store.
    handed_over: u64,
    long_waits: u64,
    /// The wait ran out, the lock was busy, or the call failed.
    refused: u64,
    lost: u64,
    longest_wait: Duration,
}

#[derive(Debug)]
struct Trouble {
    at: u64,
    name: Box<str>,
    backend: Box<str>,
    is_loss: bool,
    what: String,
}

/// A hold that was seen from one moment to another.
#[derive(Debug)]
struct Seen {
    place: String,
    from: u64,
    to: u64,
}

impl Activity {
    /// It ends with the router, not with the registry.
    pub(crate) fn observer(self: &Arc<Self>) -> impl Observer + use<> {
        Watching(Arc::downgrade(self))
    }

    /// Notes who holds these locks now.
    pub(crate) fn saw(&self, store: &str, locks: &[SeenLock]) {
        let now = now_ms();
        let mut known = self.known();
        for lock in locks {
            for holder in &lock.holders {
                let place = holder.place.clone();
                let hold = holder.hold.clone().unwrap_or_else(|| place.clone());
                let id = (store.to_owned(), lock.key.clone(), hold);
                known.seen.entry(id).or_insert(Seen { place, from: now, to: now }).to = now;
            }
        }
        let oldest = now.saturating_sub(CELL_MS * CELL_COUNT);
        known.seen.retain(|_, seen| seen.to >= oldest);
        if known.seen.len() > MOST_SEEN {
            let mut ends: Vec<_> = known.seen.values().map(|seen| seen.to).collect();
            ends.sort_unstable();
            let oldest = ends[ends.len() - MOST_SEEN];
            known.seen.retain(|_, seen| seen.to >= oldest);
        }
    }

    /// As JSON for the page.
    pub(crate) fn tell(&self) -> Value {
        let now = now_ms();
        let first = (now / CELL_MS).saturating_sub(CELL_COUNT - 1);
        let mut known = self.known();
        for name in known.names.values_mut() {
            name.forget_before(first);
        }
        let is_active = |name: &Name| name.waiting + name.held > 0 || !name.cells.is_empty();
        let mut names: Vec<_> = known.names.iter().filter(|(_, name)| is_active(name)).collect();
        names.sort_by_cached_key(|(id, name)| (std::cmp::Reverse((name.waiting, name.heat())), (*id).clone()));
        let names = names.into_iter().take(MOST_TOLD).map(|((name, backend), of)| {
            let cells = of.cells.iter().map(|cell| {
                json!([cell.at - first, cell.acquired, cell.handed_over, cell.long_waits, cell.refused, cell.lost])
            });
            json!({
                "name": name,
                "store": backend,
                "template": of.template,
                "waiting": of.waiting,
                "held": of.held,
                "longest_wait": of.cells.iter().map(|cell| cell.longest_wait.as_millis() as u64).max(),
                "cells": cells.collect::<Vec<_>>(),
            })
        });
        let names: Vec<_> = names.collect();
        let trouble = known.trouble.iter().rev().map(|one| {
            json!({ "at": one.at, "name": one.name, "store": one.backend, "is_loss": one.is_loss, "what": one.what })
        });
        let trouble: Vec<_> = trouble.collect();
        let mut seen: Vec<_> = known.seen.iter().collect();
        seen.sort_unstable_by_key(|(id, seen)| (seen.from, *id));
        let seen = seen.into_iter().map(|((store, key, _), seen)| json!([store, key, seen.place, seen.from, seen.to]));
        json!({
            "cell": CELL_MS,
            "cells": CELL_COUNT,
            "first": first * CELL_MS,
            "names": names,
            "trouble": trouble,
            "seen": seen.collect::<Vec<_>>(),
        })
    }

    /// The elections in which this process is a candidate, by backend and name.
    pub(crate) fn elections(&self) -> BTreeSet<(String, String)> {
        self.known().elections.clone()
    }

    /// The locks that this process takes with `once_per`, by backend and name.
    pub(crate) fn tasks(&self) -> BTreeMap<(String, String), Task> {
        self.known().tasks.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, label: &Label, event: &Event) {
        let now = now_ms();
        let mut known = self.known();
        known.note_of_whole_cluster(label, event);
        let name = known.name(label);
        let cell = name.cell(now / CELL_MS);
        match event {
            Event::Asked { .. } => name.waiting += 1,
            Event::Acquired { waited, way, .. } => {
                cell.acquired += 1;
                cell.handed_over += u64::from(*way != GrantWay::Request);
                cell.long_waits += u64::from(*waited >= LONG_WAIT);
                cell.longest_wait = cell.longest_wait.max(*waited);
                name.waiting = name.waiting.saturating_sub(1);
                name.held += 1;
            }
            Event::Busy { .. }
            | Event::AlreadyRun { .. }
            | Event::GivenUp { .. }
            | Event::TimedOut { .. }
            | Event::Failed { .. } => {
                cell.refused += u64::from(!matches!(event, Event::AlreadyRun { .. }));
                name.waiting = name.waiting.saturating_sub(1);
            }
            Event::Lost { .. } => {
                cell.lost += 1;
                name.held = name.held.saturating_sub(1);
            }
            Event::Released { .. } | Event::NotSettled { .. } => name.held = name.held.saturating_sub(1),
            _ => {}
        }
        let what = match event {
            Event::TimedOut { waited, .. } => format!("the wait ran out after {waited:.1?}"),
            Event::Failed { reason, .. } => format!("failed: {reason}"),
            Event::Lost { cause, held, reason, .. } => {
                let reason = reason.as_deref().map(|reason| format!("; {reason}")).unwrap_or_default();
                format!("lost after {held:.1?}: {}{reason}", cause.as_str())
            }
            Event::RenewalFailed { reason, remaining, .. } => {
                format!("a renewal failed, {remaining:.1?} are left: {reason}")
            }
            Event::ReleaseFailed { reason, .. } => format!("the release failed: {reason}"),
            Event::NotSettled { kind, .. } => format!("the work was not made final: {}", kind.as_str()),
            Event::NearExpiry { remaining } => format!("near the end of its lease, {remaining:.1?} are left"),
            _ => return,
        };
        let is_loss = matches!(event, Event::Lost { .. } | Event::NotSettled { .. });
        let (name, backend) = (label.name().into(), label.backend().into());
        known.trouble.push_back(Trouble { at: now, name, backend, is_loss, what });
        if known.trouble.len() > MOST_TROUBLE {
            // Many waits that run out must not hide a loss.
            let oldest = known.trouble.iter().position(|one| !one.is_loss).unwrap_or(0);
            known.trouble.remove(oldest);
        }
    }
}

impl Known {
    /// Elections and tasks, whose state the page reads from the store.
    fn note_of_whole_cluster(&mut self, label: &Label, event: &Event) {
        let Event::Asked { once_per, .. } = event else { return };
        let id = || (label.backend().to_owned(), label.name().to_owned());
        // The values of a key stay out of events: with them the election is not known.
        if label.is_election() && !label.name().contains('<') && self.elections.len() < MOST_LOOKED_AT {
            self.elections.insert(id());
        }
        if let Some(once_per) = *once_per
            && self.tasks.len() < MOST_LOOKED_AT
        {
            self.tasks.entry(id()).or_insert_with(|| Task { template: label.template().into(), once_per });
        }
    }

    fn name(&mut self, label: &Label) -> &mut Name {
        let id = (label.name().into(), label.backend().into());
        let is_known = self.names.contains_key(&id) || self.names.len() < MOST_NAMES;
        let id = if is_known { id } else { (OTHER.into(), Box::default()) };
        self.names.entry(id).or_insert_with(|| Name {
            template: if is_known { label.template().into() } else { Box::default() },
            ..Name::default()
        })
    }
}

impl Name {
    fn cell(&mut self, at: u64) -> &mut Cell {
        if self.cells.back().is_none_or(|last| last.at < at) {
            self.cells.push_back(Cell { at, ..Cell::default() });
            self.forget_before((at + 1).saturating_sub(CELL_COUNT));
        }
        let last = self.cells.len() - 1;
        &mut self.cells[last]
    }

    fn forget_before(&mut self, first: u64) {
        while self.cells.front().is_some_and(|cell| cell.at < first) {
            self.cells.pop_front();
        }
    }

    /// How much happened.
    fn heat(&self) -> u64 {
        self.cells.iter().map(|cell| cell.acquired + cell.refused + cell.lost).sum()
    }
}

struct Watching(Weak<Activity>);

impl Observer for Watching {
    fn on_event(&self, label: &Label, event: &Event) {
        // Often, and nothing to see.
        if matches!(event, Event::Renewed { .. }) {
            return;
        }
        if let Some(activity) = self.0.upgrade() {
            activity.note(label, event);
        }
    }
}
