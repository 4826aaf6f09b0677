//! Undoes what a claim or a hold has in one of the stores: at once if the store answers soon, else later on our thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::{Backend, Claim, Hold, Result, Standing};
use dlock_store::background;

use crate::in_order::{FirstHold, HoldSession, InOrder};

/// The part that is undone.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// A hold.
    Release(Arc<Hold>),
    /// A claim that may hold the lock.
    Abandon(Arc<Claim>),
}

/// The timeout of one request on our thread.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

impl Undo {
    fn ttl(&self) -> Duration {
        match self {
            Self::Release(hold) => hold.claim.ttl,
            Self::Abandon(claim) => claim.ttl,
        }
    }

    async fn send(&self, store: &dyn Backend) -> Result<()> {
        match self {
            Self::Release(hold) => store.release(hold).await.map(drop),
            Self::Abandon(claim) => store.abandon(claim).await,
        }
    }
}

impl InOrder {
    /// Undoes something in the first store. False if the store does not confirm it soon: then our thread continues.
    pub(crate) async fn undo(self: &Arc<Self>, undo: Undo) -> bool {
        if !self.is_first_bypassed() {
            let first_timeout = self.first_timeout(undo.ttl()).max(Duration::from_millis(200));
            let by = self.clock.now().after(first_timeout);
            if matches!(self.clock.timeout_at(by, undo.send(&*self.first)).await, Some(Ok(()))) {
                return true;
            }
            self.mark_first_down();
        }
        self.undo_later(&self.first, undo);
        false
    }

    /// Ends a hold in the gate, after it has ended in the authority.
    pub(crate) async fn leave_gate(self: &Arc<Self>, session: &HoldSession, claim: &Arc<Claim>) {
        match session.first() {
            FirstHold::Held(hold) => self.undo(Undo::Release(hold)).await,
            FirstHold::Unknown => self.undo(Undo::Abandon(claim.clone())).await,
            FirstHold::Nothing => return,
        };
        // Only now: if the caller's future is dropped before this, the next release does it again.
        session.forget_first();
    }

    /// Undoes the part later, on our thread.
    pub(crate) fn leave_gate_later(self: &Arc<Self>, session: &HoldSession, claim: &Arc<Claim>) {
        match session.forget_first() {
            FirstHold::Held(hold) => self.undo_later(&self.first, Undo::Release(hold)),
            FirstHold::Unknown => self.undo_later(&self.first, Undo::Abandon(claim.clone())),
            FirstHold::Nothing => {}
        }
    }

    /// Undoes something on our thread. It tries again until the store confirms, or until the lease has ended by itself. A
    /// lease that other holds share does not end by itself, so there it tries until the store confirms.
    pub(crate) fn undo_later(self: &Arc<Self>, store: &Arc<dyn Backend>, undo: Undo) {
        let Ok(background) = background() else { return };
        let ends_alone = store.profile().expires_alone;
        if !self.undo_limits.begin(ends_alone) {
            return;
        }
        let (stores, store) = (self.clone(), store.clone());
        background.spawn(async move {
            let until = stores.clock.now().after(undo.ttl());
            let mut pause = Duration::from_millis(100);
            while let Some(capacity) = stores.undo_limits.capacity().await {
                let by = stores.clock.now().after(REQUEST_TIMEOUT);
                let done = stores.clock.timeout_at(by, undo.send(&*store)).await;
                drop(capacity);
                let lease_ended = ends_alone && stores.clock.now() >= until;
                let is_last = done.is_some_and(|done| done.err().is_none_or(|error| !error.is_retryable()));
                if lease_ended || is_last || stores.closed.load(Ordering::Acquire) {
                    break;
                }
                stores.clock.sleep_until(stores.clock.now().after(pause)).await;
                pause = (pause * 2).min(REQUEST_TIMEOUT);
            }
            stores.undo_limits.end();
        });
    }

    /// Renews holds in the gate, while the caller renews them in the authority. Nobody waits for the gate's answers: they only
    /// decide whether the gate is renewed again.
    pub(crate) fn renew_gate(self: &Arc<Self>, holds: impl Iterator<Item = Arc<HoldSession>>) {
        let held = holds.filter_map(|session| match session.first() {
            FirstHold::Held(hold) => Some((session, hold)),
            FirstHold::Unknown | FirstHold::Nothing => None,
        });
        let held: Vec<_> = held.collect();
        let Ok(background) = background() else { return };
        if held.is_empty() || self.is_first_bypassed() {
            return;
        }
        let stores = self.clone();
        background.spawn(async move { stores.renew_gate_now(&held).await });
    }

    async fn renew_gate_now(&self, held: &[(Arc<HoldSession>, Arc<Hold>)]) {
        let holds: Vec<&Hold> = held.iter().map(|(_, hold)| &**hold).collect();
        // Until the next renewal at the latest.
        let bound = holds.iter().map(|hold| hold.claim.ttl / 3).min().unwrap_or(REQUEST_TIMEOUT);
        let by = self.clock.now().after(bound.min(REQUEST_TIMEOUT));
        let Some(answers) = self.clock.timeout_at(by, self.first.renew(&holds)).await else { return };
        for ((session, _), answer) in held.iter().zip(answers) {
            if matches!(answer, Ok(Standing::Lost)) {
                session.forget_first();
            }
        }
    }

    /// Renews a gate's grant early if it is shorter than the ttl, as a pushed grant is. The engine times its first renewal by
    /// the authority's grant, which may be too late for the gate.
    pub(super) fn keep_gate(self: &Arc<Self>, session: &Arc<HoldSession>) {
        let FirstHold::Held(hold) = session.first() else { return };
        if hold.validity.granted >= hold.claim.ttl {
            return;
        }
        let Ok(background) = background() else { return };
        let at = hold.validity.from.after(hold.validity.granted / 2);
        // Weak references: the task must keep neither the store nor the hold alive.
        let (stores, session) = (Arc::downgrade(self), Arc::downgrade(session));
        let clock = self.clock.clone();
        drop(hold);
        background.spawn(async move {
            clock.sleep_until(at).await;
            let (Some(stores), Some(session)) = (stores.upgrade(), session.upgrade()) else { return };
            if let FirstHold::Held(hold) = session.first() {
                stores.renew_gate_now(&[(session, hold)]).await;
            }
        });
    }
}
