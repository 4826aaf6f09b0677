//! Admits claims to the second store: after the first store has granted them, or while the first store is down.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Hold, Queue, Result, Standing, Validity};

use crate::in_order::admissions::Admission;
use crate::in_order::errors::{error_after, is_down};
use crate::in_order::first_hold::FirstHold;
use crate::in_order::{InOrder, PairKind};

/// The result of asking the first store.
pub(super) enum FirstAnswer {
    /// The claim may ask the second store.
    Admitted,
    /// The attempt ends with this answer.
    Final(Attempt),
}

impl InOrder {
    /// Asks the first store. A claim that a gate has admitted does not ask the gate again.
    pub(super) async fn admit(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<FirstAnswer> {
        // If both stores decide, each attempt asks the first store again, which begins the lease there anew.
        if self.kind == PairKind::Gate
            && let Some(admission) = self.admissions.get(&claim.owner)
        {
            if self.clock.now() >= admission.until || !self.still_holds_first(claim, admission).await {
                // The claim has held the gate for one ttl without getting the authority. Now it frees the gate for others,
                // and waits at the authority alone.
                self.leave_first(claim).await?;
                self.note_admission(claim, FirstHold::Nothing);
            }
            return Ok(FirstAnswer::Admitted);
        }
        if self.skips_first(claim) {
            return Ok(self.admitted(claim, FirstHold::Nothing));
        }
        match self.ask_first(claim, queue).await? {
            FirstReply::Attempt(Attempt::Acquired(hold)) => Ok(self.admitted(claim, FirstHold::Held(Arc::new(hold)))),
            FirstReply::Attempt(Attempt::Contended(wake)) => {
                self.leave_second(claim).await?;
                if let (Some(bypass), Queue::Join { .. }) = (&self.bypass, queue) {
                    bypass.note_place(claim.owner);
                }
                Ok(FirstAnswer::Final(Attempt::Contended(self.wait_in_first(claim, wake))))
            }
            FirstReply::Attempt(Attempt::AlreadyRun) => Ok(FirstAnswer::Final(Attempt::AlreadyRun)),
            FirstReply::Bypassed(first) => Ok(self.admitted(claim, first)),
        }
    }

    /// If both stores decide, a claim that waits in the second store may lose the lock in the first. The next holder there
    /// then waits for the second store. If this claim kept its place in the queue there, each would wait for the other.
    async fn leave_second(&self, claim: &Arc<Claim>) -> Result<()> {
        if self.kind == PairKind::Gate || self.admissions.get(&claim.owner).is_none() {
            return Ok(());
        }
        let [_, name] = self.kind.names();
        let left = self.second.abandon(&self.for_second(claim)).await;
        // Not retryable with this owner: an abandon that arrives late would end the owner's next grant.
        left.map_err(|error| error_after(name, error, false).with_retryable(false))?;
        self.admissions.take(&claim.owner);
        Ok(())
    }

    /// Whether the claim asks the second store only. A gate knows nothing about `once_per`: during a run it would answer
    /// `Contended` where the authority answers `AlreadyRun`.
    pub(super) fn skips_first(&self, claim: &Claim) -> bool {
        self.kind == PairKind::Gate && claim.once_per.is_some()
    }

    fn admitted(&self, claim: &Claim, first: FirstHold) -> FirstAnswer {
        self.note_admission(claim, first);
        FirstAnswer::Admitted
    }

    /// Records that the claim may ask the second store.
    pub(super) fn note_admission(&self, claim: &Claim, mut first: FirstHold) {
        let had_place = self.bypass.as_ref().is_some_and(|bypass| bypass.forget_place(&claim.owner));
        if had_place && matches!(first, FirstHold::Nothing) {
            // The gate may still grant the lock to that place.
            first = FirstHold::Unknown;
        }
        let until = match &first {
            // A little before the lease ends, so that the claim can free the gate, and the next waiter is woken.
            FirstHold::Held(hold) => Validity::new(hold.validity.from, claim.ttl).deadline(),
            FirstHold::Unknown | FirstHold::Nothing => BootInstant::NEVER,
        };
        self.admissions.put(claim.owner, Admission { first, until });
    }

    /// Whether an admitted claim still holds the first store. A grant that was pushed to a waiter may be shorter than the ttl,
    /// so this renews it.
    async fn still_holds_first(&self, claim: &Claim, admission: Admission) -> bool {
        let FirstHold::Held(hold) = &admission.first else { return true };
        if hold.validity.granted >= claim.ttl {
            return true;
        }
        let bound = self.clock.now().after(self.first_timeout(claim.ttl));
        match self.clock.timeout_at(bound, self.first.renew(&[hold])).await.and_then(|mut answers| answers.pop()) {
            Some(Ok(Standing::Renewed(validity))) => {
                let mut renewed: Hold = hold.for_claim(hold.claim.clone());
                renewed.validity = validity;
                let first = FirstHold::Held(Arc::new(renewed));
                self.admissions.put(claim.owner, Admission { first, ..admission });
                true
            }
            Some(Ok(Standing::Lost)) => false,
            // Unknown, so the second store decides.
            Some(Err(_)) | None => true,
        }
    }

    async fn ask_first(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<FirstReply> {
        if self.bypass.is_none() {
            let answer = self.first.try_acquire(claim, queue).await;
            return answer.map(FirstReply::Attempt).map_err(|error| self.error_of_first(error));
        }
        if self.is_first_bypassed() {
            return Ok(FirstReply::Bypassed(FirstHold::Nothing));
        }
        let now = self.clock.now();
        let mut first_timeout = self.first_timeout(claim.ttl);
        if let Queue::Join { until, .. } = queue {
            first_timeout = first_timeout.min(until.since(now) / 2);
        }
        match self.clock.timeout_at(now.after(first_timeout), self.first.try_acquire(claim, queue)).await {
            Some(Ok(attempt)) => Ok(FirstReply::Attempt(attempt)),
            Some(Err(error)) if is_down(&error) => {
                self.mark_first_down();
                let may_have_left = error.may_have_left();
                Ok(FirstReply::Bypassed(if may_have_left { FirstHold::Unknown } else { FirstHold::Nothing }))
            }
            Some(Err(error)) => Err(self.error_of_first(error)),
            None => {
                self.mark_first_down();
                Ok(FirstReply::Bypassed(FirstHold::Unknown))
            }
        }
    }

    /// How long a call waits for a store if it can continue without that store: a quarter of the ttl, at most one second.
    pub(crate) fn first_timeout(&self, ttl: Duration) -> Duration {
        (ttl / 4).min(Duration::from_secs(1))
    }
}

/// The first store's reply to an attempt.
enum FirstReply {
    Attempt(Attempt),
    /// It is down and bypassed.
    Bypassed(FirstHold),
}
