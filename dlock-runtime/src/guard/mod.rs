//! The user's side of a hold: a guard that owns it, and a handle that only looks at it.
//!
//! Owns the guard, the handle ([`held`]), the guards of a call with several keys ([`guard_set`]), the holds of one call ([`holds`]) and of the
//! enclosing calls ([`scope`]), and the order in which locks are nested (`lock_order`, in debug builds).
//!
//! May know holds; nothing of how they are acquired.

#[cfg(debug_assertions)]
mod dropped_at_once;
pub(crate) mod guard_set;
pub(crate) mod held;
pub(crate) mod holds;
#[cfg(debug_assertions)]
pub(crate) mod lock_order;
pub(crate) mod scope;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(doc)]
use dlock_contract::ErrorKind;
use dlock_contract::{Error, LossCause, Result};
use dlock_store::engine::{guarded, not_forked, poll_guarded};

use crate::events::event::Event;
use crate::events::spans::LockSpan;
use crate::guard::held::Held;
use crate::guard::holds::Holds;
use crate::hold::loss::LossListener;
use crate::hold::release::{self, ReleaseOutcome};
use crate::hold::tenure::Tenure;

/// A held lock. Dropping it releases on dlock's own thread; [`release`](Self::release) does so here and says how.
///
/// At the end of a program [`shutdown`](crate::shutdown) waits for that; without it, the lock of a guard that was dropped
/// just before may stay until its ttl ends.
///
/// Bind it to a name: `let _guard = …`. With `let _ = …`, which the compiler may propose, the lock is released at once. Debug
/// builds warn of that in the log.
///
/// Not `Clone`: there is one owner. It may be moved to another task.
#[must_use = "the lock is released when the guard is dropped: write `let _guard = …`, because `let _ = …` releases it at once"]
pub struct Guard {
    held: Held,
    /// Another owner releases: our thread, the release in place, or the enclosing call.
    handed_over: bool,
    /// Present if the enclosing call owns the hold. Listens for its loss.
    joined: Option<Box<LossListener>>,
    span: LockSpan,
    #[cfg(debug_assertions)]
    use_seen: dropped_at_once::Use,
}

impl Guard {
    pub(crate) fn new(tenure: Arc<Tenure>) -> Self {
        Self {
            held: Held(tenure),
            handed_over: false,
            joined: None,
            span: LockSpan::default(),
            #[cfg(debug_assertions)]
            use_seen: dropped_at_once::Use::default(),
        }
    }

    /// A further use of the enclosing call's hold, which that call releases.
    pub(crate) fn joined(tenure: Arc<Tenure>) -> Self {
        let mut guard = Self::new(tenure.clone());
        (guard.joined, guard.handed_over) = (Some(Box::new(LossListener::new(tenure))), true);
        guard
    }

    /// Begins the span of the hold. Our own thread begins none, for a caller that sleeps: that caller does it when it wakes.
    pub(crate) fn begin_span(&mut self) {
        if self.span.is_none() && !self.is_joined() {
            self.span = LockSpan::hold(&self.held.0.label);
        }
    }

    /// The caller gets it now.
    pub(crate) fn note_got(&self) {
        #[cfg(debug_assertions)]
        self.use_seen.begin();
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// The same hold that the guard gives to its user, without the note that the user has used it.
    pub(crate) fn unused(&self) -> &Held {
        &self.held
    }

    /// Its hold, as the calls inside of the body see it.
    pub(crate) fn hold(&self) -> Holds {
        Holds::of(self.held.0.clone(), self.is_joined())
    }

    /// Checks that the lock is still held, as [`Held::check`] does. A guard that has joined the hold of an enclosing call
    /// (`reentrant`) holds nothing outside of that call's body, such as in another task.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`].
    pub fn check(&self) -> Result<()> {
        Held::check(self)?;
        if self.is_joined() && !scope::chain().any(|held| Arc::ptr_eq(&held, &self.held.0)) {
            return Err(self.held.0.loss(LossCause::LeftBody));
        }
        Ok(())
    }

    /// Asks the store whether the lock is still held, and prolongs it by its ttl, as [`Held::confirm`] does. Outside of the body
    /// whose hold it has joined, a guard prolongs nothing.
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`Held::confirm`].
    pub async fn confirm(&self) -> Result<()> {
        self.check()?;
        Held::confirm(self).await
    }

    /// Ready once the hold is lost; for the task that runs the body.
    pub(crate) fn poll_lost(&self, cx: &mut Context<'_>) -> Poll<Error> {
        poll_guarded(cx, |cx| match &self.joined {
            None => self.held.0.poll_lost(cx),
            Some(listener) => listener.poll(cx),
        })
    }

    /// Releases the lock and says whether it was held to the end. Of a lock with `once_per` it also says that the run
    /// has succeeded. A guard that is dropped does not say how the run ended, unless a panic drops it: then it has
    /// failed.
    ///
    /// If the store does not answer, the release goes on in the background and the ttl ends the lock at the latest;
    /// that is no error, since what the caller did under the lock was covered by it. A lock that lives in a session is
    /// another matter: the session may have ended at any time, so without an answer the lock counts as lost.
    ///
    /// Where the hold is a transaction in which the caller has worked (`way=row` of the SQL stores), this commits it. A guard
    /// that is dropped rolls it back.
    ///
    /// # Errors
    /// [`ErrorKind::CommitRefused`] if the store refused that commit, and [`ErrorKind::CommitUnknown`] if nobody knows whether it
    /// was done; [`ErrorKind::Lost`] if the lock had ended before, or if nobody knows whether it had; [`ErrorKind::Unsupported`]
    /// in a child after `fork`, where nothing is released: the parent has the lock.
    pub async fn release(self) -> Result<()> {
        // A lost hold is released in the background, so that the caller hears of the loss now.
        self.check()?;
        self.note_success();
        finish(self).await
    }

    /// Notes that the body has succeeded. For a joined hold, the enclosing call does that.
    pub(crate) fn note_success(&self) {
        if !self.is_joined() {
            self.0.note_run(true);
            self.0.note_end(true);
        }
    }

    /// Releases in the background, as a drop without a panic does.
    pub(crate) fn give_back(self) {
        if !self.handed_over {
            release::later(self.hand_over());
        }
    }

    fn hand_over(mut self) -> Arc<Tenure> {
        self.handed_over = true;
        self.held.0.clone()
    }
}

/// Releases in place a hold that was just checked. Its outcome is what happened to this hold, not what the store knows
/// by now. If the returned future is dropped, also before its first poll, our thread releases.
pub(crate) async fn finish(mut guard: Guard) -> Result<()> {
    if guard.is_joined() {
        return guard.held.check();
    }
    // In a child after `fork` the hold is a copy, and the lock is the parent's.
    not_forked().map_err(|error| guard.0.named(error))?;
    let span = std::mem::take(&mut guard.span);
    let tenure = guard.hand_over();
    let ended = end(&tenure).await;
    span.held(ended.as_ref().err().map_or("released", |error| error.kind().as_str()));
    ended
}

async fn end(tenure: &Arc<Tenure>) -> Result<()> {
    match guarded(release::in_place(tenure.clone())).await {
        ReleaseOutcome::Released | ReleaseOutcome::Unknown => {
            // Of a hold that was lost at the last moment the observers have heard already.
            if tenure.is_released() {
                let held = tenure.shared.clock.now().since(tenure.since);
                tenure.shared.events.tell(&tenure.label, &Event::Released { held });
            }
            Ok(())
        }
        ReleaseOutcome::NotOwner => Err(tenure.loss(tenure.told_cause())),
        ReleaseOutcome::Unconfirmed => Err(tenure.loss(LossCause::Unconfirmed)),
        ReleaseOutcome::Unsettled(error) => Err(error),
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.handed_over {
            if std::thread::panicking() {
                self.held.0.note_run(false);
            }
            #[cfg(debug_assertions)]
            self.use_seen.end(&self.held.0.label);
            std::mem::take(&mut self.span).held(if self.held.0.is_held() { "released" } else { "lost" });
            release::later(self.held.0.clone());
        }
    }
}

impl Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        #[cfg(debug_assertions)]
        self.use_seen.note_use();
        &self.held
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.held, f)
    }
}
