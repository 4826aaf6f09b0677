//! One hold: a lock of a session.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, BreakRecord, HoldId, Mode, Owner, Result};
use dlock_store::Clock;
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};

use super::dialect::NamedDialect;
use super::failure::Answered;
use super::name::LockName;
use super::shared_session::{LockPlace, SharedSession};
use crate::connection::pending_attempts::PendingAttempts;

/// How long a broken hold waits until its holder has heard of it. The holds that are looked at next wait too.
const RECORD_READ_TIMEOUT: Duration = Duration::from_millis(50);
/// How long the server may take to free a broken hold. After that the session ends.
const FREE_TIMEOUT: Duration = Duration::from_millis(500);

/// One hold. Dropping it frees the lock.
pub(super) struct Held<D: NamedDialect> {
    pub(super) owner: Owner,
    pub(super) lock: LockName,
    pub(super) mode: Mode,
    /// The name of the lock's row.
    pub(super) row: String,
    pub(super) id: HoldId,
    pub(super) token: u64,
    pub(super) since: BootInstant,
    session: Arc<SharedSession<D>>,
    release: Mutex<Release<D>>,
    /// The hold to which a release has asked the server to give the lock.
    heir: OnceLock<HoldId>,
    ending: watch::Sender<Ending>,
    /// The holder has asked for the record of the break, so it knows that the lock is lost.
    told: Notify,
    pending_attempts: Arc<PendingAttempts>,
}

/// Whether an operator broke the hold.
#[derive(Debug)]
enum Ending {
    Lives,
    Broken(BreakRecord),
}

/// How far its release has come.
enum Release<D: NamedDialect> {
    /// Nobody has asked for it. The hold has its place in the session.
    NotBegun(LockPlace<D>),
    /// Nobody has heard yet how it ended.
    Begun(watch::Receiver<Option<bool>>),
    Over,
}

/// Tells whether the lock was held when it was freed. If this is dropped before, the session has ended without an answer.
pub(super) type ReleaseAnswer = watch::Sender<Option<bool>>;

/// A hold as it was granted.
pub(super) struct NamedGrant {
    pub(super) owner: Owner,
    pub(super) lock: LockName,
    pub(super) mode: Mode,
    pub(super) row: String,
    pub(super) token: u64,
    /// Since before the server was asked for something that it has answered with the lock held.
    pub(super) since: BootInstant,
}

impl<D: NamedDialect> dlock_contract::Session for Held<D> {
    /// Reports only the end of the session and an operator's break. Both are certain.
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let (mut ending, mut ended) = (self.ending.subscribe(), self.session.ended());
        Some(Box::pin(async move {
            // An error: the hold has gone, or the session.
            tokio::select! {
                _ = ending.wait_for(|ending| !matches!(ending, Ending::Lives)) => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
        }))
    }
}

impl<D: NamedDialect> Held<D> {
    pub(super) fn new(granted: NamedGrant, place: LockPlace<D>, pending_attempts: &Arc<PendingAttempts>) -> Self {
        let NamedGrant { owner, lock, mode, row, token, since } = granted;
        Self {
            owner,
            lock,
            mode,
            row,
            id: HoldId::of(&owner),
            token,
            since,
            session: place.session().clone(),
            release: Mutex::new(Release::NotBegun(place)),
            heir: OnceLock::new(),
            ending: watch::Sender::new(Ending::Lives),
            told: Notify::new(),
            pending_attempts: pending_attempts.clone(),
        }
    }

    pub(super) fn session(&self) -> &Arc<SharedSession<D>> {
        &self.session
    }

    /// Whether an operator broke the hold, if it has surely ended.
    pub(super) fn ending(&self) -> Option<Option<BreakRecord>> {
        let known = match &*self.ending.borrow() {
            Ending::Broken(record) => Some(record.clone()),
            Ending::Lives if self.session.has_ended() => None,
            Ending::Lives => return None,
        };
        self.told.notify_one();
        Some(known)
    }

    pub(super) fn has_ended(&self) -> bool {
        !matches!(*self.ending.borrow(), Ending::Lives) || self.session.has_ended()
    }

    /// Asks the server whether the lock is still held: from before the request on, or not any more.
    pub(super) async fn confirm(&self) -> Result<Option<BootInstant>> {
        // Not behind a question that is under way, whose answer may be long in coming: the end is certain.
        if !self.is_held() {
            return Ok(None);
        }
        let heard = self.session.confirm().await?;
        // If the end was found meanwhile, it counts.
        Ok(heard.filter(|_| self.is_held()))
    }

    /// Whether it has not ended, and nobody has begun to free it.
    pub(super) fn is_held(&self) -> bool {
        !self.has_ended() && matches!(*self.release(), Release::NotBegun(_))
    }

    /// Frees the lock; false if it was not held. `None` if that has begun before.
    pub(super) fn free(&self) -> Option<impl Future<Output = Answered<bool>> + use<D>> {
        let (place, answer) = self.begin_release()?;
        let ended = self.has_ended();
        if ended {
            answer.send_replace(Some(false));
        }
        let freed = self.session.unlock(&self.lock, self.mode, place, move |freed| {
            if !ended {
                answer.send_replace(Some(freed));
            }
        });
        Some(async move { if ended { Ok(false) } else { freed.await } })
    }

    /// Whether the lock was held when it was freed, by a release that has begun and that nobody has heard of. It waits for the
    /// answer. `None`: nobody knows, for the session has ended without an answer.
    pub(super) async fn freed(&self) -> Option<bool> {
        let mut answer = match &*self.release() {
            Release::NotBegun(_) => return None,
            Release::Begun(answer) => answer.clone(),
            Release::Over => return Some(false),
        };
        answer.wait_for(Option::is_some).await.ok().and_then(|answer| *answer)
    }

    /// Notes that the holder has heard how the release ended. From now on this is nobody's hold.
    pub(super) fn note_told(&self) {
        *self.release() = Release::Over;
    }

    /// Gives its place to the next hold, with the lock in it, if it has not ended.
    pub(super) fn give_place(&self, heir: HoldId) -> Option<(LockPlace<D>, ReleaseAnswer)> {
        if self.has_ended() {
            return None;
        }
        let given = self.begin_release()?;
        self.heir.get_or_init(|| heir);
        Some(given)
    }

    /// The holds of which the server may still have the lock after the release.
    pub(super) fn ids(&self) -> impl Iterator<Item = HoldId> {
        [Some(self.id), self.heir.get().copied()].into_iter().flatten()
    }

    /// `None` if it has begun before.
    fn begin_release(&self) -> Option<(LockPlace<D>, ReleaseAnswer)> {
        let mut release = self.release();
        if !matches!(*release, Release::NotBegun(_)) {
            return None;
        }
        let (answer, known) = watch::channel(None);
        let begun = std::mem::replace(&mut *release, Release::Begun(known));
        drop(release);
        let Release::NotBegun(mut place) = begun else { return None };
        place.note_release(true);
        Some((place, answer))
    }

    /// Gives the lock up, because an operator broke the hold. The holder hears of it first, and then the server. Until
    /// both have, no other caller gets the lock.
    pub(super) async fn break_off(&self, record: BreakRecord, clock: &Clock) {
        self.ending.send_if_modified(|ending| {
            let lives = matches!(ending, Ending::Lives);
            if lives {
                *ending = Ending::Broken(record);
            }
            lives
        });
        let _ = clock.timeout_at(clock.now().after(RECORD_READ_TIMEOUT), self.told.notified()).await;
        // The holder's task has the answer now, and comes first.
        tokio::task::yield_now().await;
        let Some((place, answer)) = self.begin_release() else { return };
        answer.send_replace(Some(false));
        // If nobody else is in the session, asking the server would add a reply that may not come.
        if self.session.end_if_alone() {
            return;
        }
        let freed = self.session.unlock(&self.lock, self.mode, place, |_| ());
        if clock.timeout_at(clock.now().after(FREE_TIMEOUT), freed).await.is_none() {
            self.session.end();
        }
    }

    fn release(&self) -> std::sync::MutexGuard<'_, Release<D>> {
        self.release.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: NamedDialect> Drop for Held<D> {
    fn drop(&mut self) {
        if let Some((place, _)) = self.begin_release() {
            // An abandon that follows waits for it.
            let pending_attempt = self.pending_attempts.begin(self.owner);
            drop(self.session.unlock(&self.lock, self.mode, (place, pending_attempt), |_| ()));
        }
    }
}

impl<D: NamedDialect> fmt::Debug for Held<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("lock", &self.lock.id).field("session", &self.session).finish_non_exhaustive()
    }
}
