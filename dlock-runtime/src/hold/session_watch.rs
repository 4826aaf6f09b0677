//! The wait for the end of one session: one task for all holds that live in the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dlock_store::Run;

use crate::hold::renewal_schedule::{Scheduled, number};

/// Listens to one session. It ends with the last hold that lives in it.
#[derive(Debug)]
pub(crate) struct SessionWatch<H>(Mutex<Watched<H>>);

#[derive(Debug)]
struct Watched<H> {
    /// By their numbers. Weak, because a hold that nobody else has must end.
    holds: BTreeMap<usize, Weak<H>>,
    /// Dropping it ends the task.
    task: Option<Run<()>>,
}

impl<H: Scheduled> SessionWatch<H> {
    /// A watch for a first hold.
    pub(super) fn of(hold: &Arc<H>) -> Arc<Self> {
        let holds = BTreeMap::from([(number(&**hold), Arc::downgrade(hold))]);
        Arc::new(Self(Mutex::new(Watched { holds, task: None })))
    }

    /// Adds a hold. False if the last one has ended: then nobody listens any more.
    fn join(&self, hold: &Arc<H>) -> bool {
        let mut watched = self.lock();
        let is_watched = !watched.holds.is_empty();
        if is_watched {
            watched.holds.insert(number(&**hold), Arc::downgrade(hold));
        }
        is_watched
    }

    /// Gives it the task that listens.
    pub(super) fn run(&self, task: Run<()>) {
        let mut watched = self.lock();
        if !watched.holds.is_empty() {
            watched.task = Some(task);
        }
    }

    /// Removes a hold that has ended.
    pub(super) fn forget(&self, hold: &H) {
        let mut watched = self.lock();
        watched.holds.remove(&number(hold));
        let task = if watched.holds.is_empty() { watched.task.take() } else { None };
        drop(watched);
        drop(task);
    }

    /// The holds that live in the session.
    pub(super) fn holds(&self) -> Vec<Arc<H>> {
        self.lock().holds.values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Watched<H>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watches of sessions in which several holds live, by store and group.
#[derive(Debug)]
pub(crate) struct GroupWatches<H>(Mutex<Groups<H>>);

type Groups<H> = BTreeMap<(usize, u64), Weak<SessionWatch<H>>>;

impl<H> GroupWatches<H> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }
}

impl<H: Scheduled> GroupWatches<H> {
    /// The watch of a group, with this hold in it, and whether it is new: then nobody listens yet.
    pub(super) fn join(&self, group: (usize, u64), hold: &Arc<H>) -> (Arc<SessionWatch<H>>, bool) {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.get(&group).and_then(Weak::upgrade)
            && watch.join(hold)
        {
            return (watch, false);
        }
        // A new group is rare, so those that have ended can go now.
        watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = SessionWatch::of(hold);
        watches.insert(group, Arc::downgrade(&watch));
        (watch, true)
    }
}
