//! Listens to the sessions that holds live in, and confirms the holds of a session that may have ended.
//!
//! The end of a session is a hint (ADR 0001): the store's answer to a renewal decides. So a wrong hint costs one request
//! and loses nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dlock_contract::Result;
use dlock_store::engine::simulation::planted;
use dlock_store::{Clock, background};
use futures::future::BoxFuture;

use crate::hold::renewal::confirm;
use crate::hold::renewal_schedule::RenewalSchedule;
use crate::hold::session_watch::SessionWatch;
use crate::hold::tenure::Tenure;

/// The pause after a hint. It doubles while the next hint is there before the pause has passed once more: a store that
/// hints all the time must not be renewed all the time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl RenewalSchedule<Tenure> {
    /// Listens to the end of the session that a hold lives in, if the store can report it.
    ///
    /// # Errors
    /// If there is no thread to listen on.
    pub(super) fn watch_session(&self, tenure: &Arc<Tenure>) -> Result<()> {
        let Some(session) = &tenure.hold.session else { return Ok(()) };
        // Before any look at the group: most stores cannot report it, and pay nothing more.
        let Some(ended) = session.ended() else { return Ok(()) };
        let (watch, is_new) = match session.group() {
            Some(group) => self.groups.join((Arc::as_ptr(&tenure.store) as usize, group), tenure),
            None => (SessionWatch::of(tenure), true),
        };
        if is_new && !planted("nobody listens to a session") {
            watch.run(background()?.run(listen(self.clock.clone(), Arc::downgrade(&watch), ended)));
        }
        tenure.note_watch(watch);
        Ok(())
    }
}

/// Confirms the holds of a session each time that it may have ended.
async fn listen(clock: Clock, watch: Weak<SessionWatch<Tenure>>, mut ended: BoxFuture<'static, ()>) {
    let mut pause = Duration::ZERO;
    loop {
        let listens_since = clock.now();
        ended.await;
        let hinted_at = clock.now();
        pause = if hinted_at.since(listens_since) < pause { (pause * 2).min(LONGEST_PAUSE) } else { SHORTEST_PAUSE };
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
