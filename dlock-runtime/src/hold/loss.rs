//! Finds the loss of a hold, declares it, and wakes the tasks that listen.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use dlock_contract::{Error, ErrorKind, LossCause, Result};
use dlock_store::engine::lock_unless_forked;
use dlock_store::engine::simulation::planted;
use dlock_store::{background, is_forked};

use crate::events::event::Event;
use crate::hold::duties::FailedRenewal;
use crate::hold::listeners::LossListeners;
use crate::hold::release;
use crate::hold::tenure::Tenure;

impl Tenure {
    /// Checks that the hold is still valid, without a request. The first caller that sees the validity end declares the
    /// loss.
    pub(crate) fn check(self: &Arc<Self>) -> Result<()> {
        #[cfg(test)]
        crate::hold::tenure::steps::count();
        if let Some(cause) = self.overdue(self.shared.clock.now()) {
            self.lose(cause);
        }
        match self.ended() {
            None => Ok(()),
            Some(cause) => Err(self.loss(cause)),
        }
    }

    /// Declares the loss: to the body, to the observers, and, where the store would keep the lock, to the store. False if
    /// the hold had ended before.
    ///
    /// The body may still run: code that is not async hears of the loss when it asks, and other code at its next await.
    /// So a lock that the store still has is left to its lease, unless the body ends before.
    pub(crate) fn lose(self: &Arc<Self>, cause: LossCause) -> bool {
        if !self.mark_lost(cause) {
            return false;
        }
        // In a child after `fork` nothing else follows: our thread stayed with the parent.
        if is_forked() {
            return true;
        }
        let held = self.shared.clock.now().since(self.since);
        let (reason, code) =
            self.failed_renewal(cause).map_or((None, None), |failed| (Some(failed.reason), failed.code));
        self.shared.events.send(&self.label, Event::Lost { cause, held, reason, code });
        let is_left_to_its_lease = matches!(cause, LossCause::MaxHold | LossCause::Shutdown);
        let expires_alone = self.store.backend.profile().expires_alone;
        if planted("a shutdown gives locks away") && cause == LossCause::Shutdown {
            release::later(self.clone());
        }
        if is_left_to_its_lease {
            self.shared.leave_to_lease(self);
        }
        if expires_alone || is_left_to_its_lease {
            self.shared.renewals.remove(self);
            // The guard of a lost hold may live on for long. Its neighbours need not wait for it, and other processes
            // do not either.
            self.pass_turn();
        }
        match background() {
            _ if expires_alone => {}
            // The store would keep the lock for as long as the lease's other holds live.
            Ok(background) if is_left_to_its_lease => background.spawn(release_after_lease(self.clone())),
            _ => release::later(self.clone()),
        }
        true
    }

    /// The error of a hold that ended in this way.
    pub(crate) fn loss(&self, cause: LossCause) -> Error {
        let text = match cause {
            LossCause::Deadline if !self.hold.claim.renewed => {
                "the lock was lost: its time was over before the work, and it is not renewed; give it a longer `at_most`, or a \
                 longer `ttl` with `renew = false`, or let dlock renew it"
            }
            _ => cause.message(),
        };
        let error = |text: Cow<'static, str>| self.error(ErrorKind::Lost(cause), text);
        if let Some(record) = self.broken.get().filter(|_| cause == LossCause::Broken) {
            return error(format!("{text}: {record}").into());
        }
        match self.failed_renewal(cause) {
            Some(FailedRenewal { reason, code }) => {
                let error = error(format!("{text}; the last renewal failed: {reason}").into());
                if let Some(code) = code { error.with_code(&code) } else { error }
            }
            None => error(text.into()),
        }
    }

    /// The last renewal of a hold whose lease has ended, if it failed.
    fn failed_renewal(&self, cause: LossCause) -> Option<FailedRenewal> {
        if cause == LossCause::Deadline { lock_unless_forked(&self.duties)?.failed.clone() } else { None }
    }

    /// Ready once the hold is lost; for the task that runs the body.
    pub(crate) fn poll_lost(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Error> {
        self.poll_lost_with(|listeners| listeners.listen(cx.waker()))
    }

    /// Ends once the hold is lost; never if it is released in order. Dropping it stops listening.
    pub(crate) async fn lost(self: &Arc<Self>) -> Error {
        let listener = LossListener::new(self.clone());
        poll_fn(|cx| listener.poll(cx)).await
    }

    fn poll_lost_with(self: &Arc<Self>, listen: impl FnOnce(&mut LossListeners) -> Option<Waker>) -> Poll<Error> {
        self.state.listen_and_look(listen, || match self.check() {
            Err(error) if !self.is_released() => Poll::Ready(error),
            _ => Poll::Pending,
        })
    }
}

/// Frees a lock whose body may still run, at the end of the lease that the store has confirmed.
async fn release_after_lease(tenure: Arc<Tenure>) {
    tenure.shared.clock.sleep_until(tenure.validity().deadline()).await;
    if !tenure.is_being_released() {
        release::later(tenure);
    }
}

/// A task that wants to hear of the loss, beside the one that runs the body. Dropping this stops listening.
#[derive(Debug)]
pub(crate) struct LossListener {
    tenure: Arc<Tenure>,
    /// Its number among the others; zero before it was first polled.
    id: AtomicU64,
}

impl LossListener {
    pub(crate) const fn new(tenure: Arc<Tenure>) -> Self {
        Self { tenure, id: AtomicU64::new(0) }
    }

    /// Ready once the hold is lost.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Error> {
        self.tenure.poll_lost_with(|listeners| {
            let (id, old) = listeners.listen_beside(self.id.load(Ordering::Relaxed), cx.waker());
            self.id.store(id, Ordering::Relaxed);
            old
        })
    }
}

impl Drop for LossListener {
    fn drop(&mut self) {
        self.tenure.state.forget(*self.id.get_mut());
    }
}
