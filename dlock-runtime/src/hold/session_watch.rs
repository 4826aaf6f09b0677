//! Listens to the sessions that holds live in, and confirms the holds of a session that may have ended. One task listens
//! for all holds of a session.
//!
//! The end of a session is a hint (ADR 0001): the store's answer to a renewal decides. So a wrong hint costs one request
//! and loses nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::Result;
use dlock_store::engine::simulation::planted;
use dlock_store::{Clock, Run, background};
use futures::future::BoxFuture;

use crate::hold::renewal::confirm;
use crate::hold::tenure::{RenewalSchedule, SessionWatch, Tenure, WatchedHolds};

/// The pause after a hint. It doubles while the next hint is there before the pause has passed once more: a store that
/// hints all the time must not be renewed all the time.
const SHORTEST_HINT_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_HINT_PAUSE: Duration = Duration::from_secs(5);

impl RenewalSchedule {
    /// Listens to the end of the session that a hold lives in, if the store can report it.
    ///
    /// # Errors
    /// If there is no thread to listen on.
    pub(super) fn watch_session(&self, tenure: &Arc<Tenure>) -> Result<()> {
        let Some(session) = &tenure.hold.session else { return Ok(()) };
        // Before any look at the group: most stores cannot report it, and pay nothing more.
        let Some(ended) = session.ended() else { return Ok(()) };
        let (watch, is_new) = match session.group() {
            Some(group) => self.join_group((Arc::as_ptr(&tenure.store) as usize, group), tenure),
            None => (SessionWatch::of(tenure), true),
        };
        if is_new && !planted("nobody listens to a session") {
            watch.run(background()?.run(listen(self.clock.clone(), Arc::downgrade(&watch), ended)));
        }
        tenure.note_watch(watch);
        Ok(())
    }

    /// The watch of a group, with this hold in it, and whether it is new: then nobody listens yet.
    fn join_group(&self, group: (usize, u64), hold: &Arc<Tenure>) -> (Arc<SessionWatch>, bool) {
        let mut watches = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
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

impl SessionWatch {
    /// A watch for a first hold.
    pub(super) fn of(hold: &Arc<Tenure>) -> Arc<Self> {
        let holds = BTreeMap::from([(hold.number(), Arc::downgrade(hold))]);
        Arc::new(Self(Mutex::new(WatchedHolds { holds, task: None })))
    }

    /// Adds a hold. False if the last one has ended: then nobody listens any more.
    fn join(&self, hold: &Arc<Tenure>) -> bool {
        let mut watched = self.lock();
        let is_watched = !watched.holds.is_empty();
        if is_watched {
            watched.holds.insert(hold.number(), Arc::downgrade(hold));
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
    pub(super) fn forget(&self, hold: &Tenure) {
        let mut watched = self.lock();
        watched.holds.remove(&hold.number());
        let task = if watched.holds.is_empty() { watched.task.take() } else { None };
        drop(watched);
        drop(task);
    }

    /// The holds that live in the session.
    pub(super) fn holds(&self) -> Vec<Arc<Tenure>> {
        self.lock().holds.values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, WatchedHolds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Confirms the holds of a session each time that it may have ended.
async fn listen(clock: Clock, watch: Weak<SessionWatch>, mut ended: BoxFuture<'static, ()>) {
    let mut pause = Duration::ZERO;
    loop {
        let listens_since = clock.now();
        ended.await;
        let hinted_at = clock.now();
        pause = if hinted_at.since(listens_since) < pause {
            (pause * 2).min(LONGEST_HINT_PAUSE)
        } else {
            SHORTEST_HINT_PAUSE
        };
        let Some(mut holds) = watch.upgrade().map(|watch| watch.holds()) else { return };
        if planted("the end of a session concerns one hold") {
            holds.truncate(1);
        }
        drop(confirm(&clock, holds));
        clock.sleep_until(hinted_at.after(pause)).await;
        // Some hold's session: the first one's may be gone with its hold.
        let holds = watch.upgrade().map(|watch| watch.holds()).unwrap_or_default();
        let Some(next) = holds.iter().find_map(|tenure| tenure.hold.session.as_ref()?.ended()) else { return };
        ended = next;
    }
}
