//! Gives back what a claim or a hold has in one of the stores: in place if the store answers soon, else on our thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{Backend, Claim, Hold, Result, Standing};

use crate::in_order::{Both, FirstPart, InOrder};

/// What is given back in the first store.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// A hold.
    Release(Arc<Hold>),
    /// A claim that may have got the lock.
    Abandon(Arc<Claim>),
}

/// The longest time that one request of these tasks may take.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

impl Undo {
    fn ttl(&self) -> Duration {
        match self {
            Self::Release(hold) => hold.claim.ttl,
            Self::Abandon(claim) => claim.ttl,
        }
    }

    async fn ask(&self, store: &dyn Backend) -> Result<()> {
        match self {
            Self::Release(hold) => store.release(hold).await.map(drop),
            Self::Abandon(claim) => store.abandon(claim).await,
        }
    }
}

impl InOrder {
    /// Gives something back in the first store. False if the store does not confirm it soon: then our thread goes on.
    pub(crate) async fn undo(self: &Arc<Self>, undo: Undo) -> bool {
        if !self.first_is_passed_over() {
            let patience = self.patience(undo.ttl()).max(Duration::from_millis(200));
            let by = self.clock.now().after(patience);
            if matches!(self.clock.timeout_at(by, undo.ask(&*self.first)).await, Some(Ok(()))) {
                return true;
            }
            self.first_is_down();
        }
        self.undo_later(&self.first, undo);
        false
    }

    /// Ends the part of a hold in a gate, after its end in the authority.
    pub(crate) async fn leave_gate(self: &Arc<Self>, both: &Both, claim: &Arc<Claim>) {
        match both.first() {
            FirstPart::Held(hold) => self.undo(Undo::Release(hold)).await,
            FirstPart::Unknown => self.undo(Undo::Abandon(claim.clone())).await,
            FirstPart::Nothing => return,
        };
        // Only now: if the caller's future is dropped before, its next release does it.
        both.forget_first();
    }

    /// The same, later.
    pub(crate) fn leave_gate_later(self: &Arc<Self>, both: &Both, claim: &Arc<Claim>) {
        match both.forget_first() {
            FirstPart::Held(hold) => self.undo_later(&self.first, Undo::Release(hold)),
            FirstPart::Unknown => self.undo_later(&self.first, Undo::Abandon(claim.clone())),
            FirstPart::Nothing => {}
        }
    }

    /// Gives something back on our thread: again and again, until the lease is over by itself. One that several holds share
    /// never is: the others keep it alive.
    pub(crate) fn undo_later(self: &Arc<Self>, store: &Arc<dyn Backend>, undo: Undo) {
        let Ok(background) = background() else { return };
        let ends_alone = store.profile().expires_alone;
        if !self.undoing.enter(ends_alone) {
            return;
        }
        let (stores, store) = (self.clone(), store.clone());
        background.spawn(async move {
            let until = stores.clock.now().after(undo.ttl());
            let mut pause = Duration::from_millis(100);
            while let Some(turn) = stores.undoing.turn().await {
                let by = stores.clock.now().after(LONGEST_REQUEST);
                let done = stores.clock.timeout_at(by, undo.ask(&*store)).await;
                drop(turn);
                let over = ends_alone && stores.clock.now() >= until;
                let is_last = done.is_some_and(|done| done.err().is_none_or(|error| !error.is_retryable()));
                if over || is_last || stores.closed.load(Ordering::Acquire) {
                    break;
                }
                stores.clock.sleep_until(stores.clock.now().after(pause)).await;
                pause = (pause * 2).min(LONGEST_REQUEST);
            }
            stores.undoing.leave();
        });
    }

    /// Renews the gate's part of holds beside their renewal in the authority. Its answers are not waited for: they decide
    /// nothing but whether the gate is worth a further renewal.
    pub(crate) fn renew_gate(self: &Arc<Self>, holds: impl Iterator<Item = Arc<Both>>) {
        let held = holds.filter_map(|both| match both.first() {
            FirstPart::Held(hold) => Some((both, hold)),
            FirstPart::Unknown | FirstPart::Nothing => None,
        });
        let held: Vec<_> = held.collect();
        let Ok(background) = background() else { return };
        if held.is_empty() || self.first_is_passed_over() {
            return;
        }
        let stores = self.clone();
        background.spawn(async move { stores.renew_gate_now(&held).await });
    }

    async fn renew_gate_now(&self, held: &[(Arc<Both>, Arc<Hold>)]) {
        let holds: Vec<&Hold> = held.iter().map(|(_, hold)| &**hold).collect();
        // No longer than until the next renewal.
        let bound = holds.iter().map(|hold| hold.claim.ttl / 3).min().unwrap_or(LONGEST_REQUEST);
        let by = self.clock.now().after(bound.min(LONGEST_REQUEST));
        let Some(answers) = self.clock.timeout_at(by, self.first.renew(&holds)).await else { return };
        for ((both, _), answer) in held.iter().zip(answers) {
            if matches!(answer, Ok(Standing::Lost)) {
                both.forget_first();
            }
        }
    }

    /// Renews a gate's grant that is shorter than the ttl, as pushed ones are, before it ends. The engine's first renewal
    /// comes at the authority's pace, which may be too late.
    pub(super) fn keep_gate(self: &Arc<Self>, both: &Arc<Both>) {
        let FirstPart::Held(hold) = both.first() else { return };
        if hold.validity.granted >= hold.claim.ttl {
            return;
        }
        let Ok(background) = background() else { return };
        let at = hold.validity.from.after(hold.validity.granted / 2);
        // Neither the store nor the hold lives longer by it.
        let (stores, both) = (Arc::downgrade(self), Arc::downgrade(both));
        let clock = self.clock.clone();
        drop(hold);
        background.spawn(async move {
            clock.sleep_until(at).await;
            let (Some(stores), Some(both)) = (stores.upgrade(), both.upgrade()) else { return };
            if let FirstPart::Held(hold) = both.first() {
                stores.renew_gate_now(&[(both, hold)]).await;
            }
        });
    }
}
