//! The way through the first store, and past it while it is down.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Queue, Result, Standing, Validity};

use crate::in_order::errors::told_after;
use crate::in_order::first_part::FirstPart;
use crate::in_order::passages::Passage;
use crate::in_order::{InOrder, Kind};

/// What the first store says to a claim.
pub(super) enum Entry {
    /// The claim may ask the second store.
    Through,
    /// The answer to the attempt.
    Answered(Attempt),
}

impl InOrder {
    /// Takes a claim through the first store. One that has come through a gate does not ask it again.
    pub(super) async fn enter(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Entry> {
        // Where both stores decide, each attempt arms the lease in the first one anew.
        if self.kind == Kind::Gate
            && let Some(passage) = self.passages.get(&claim.owner)
        {
            if self.clock.now() >= passage.until || !self.still_has(claim, passage).await {
                // It has kept the gate for a ttl and did not get the authority. Now others may come through, and it goes on
                // waiting at the authority alone.
                self.leave(claim).await?;
                self.note_passage(claim, FirstPart::Nothing);
            }
            return Ok(Entry::Through);
        }
        if self.skips_first(claim) {
            return Ok(self.through(claim, FirstPart::Nothing));
        }
        match self.ask_first(claim, queue).await? {
            Asked::Attempt(Attempt::Acquired(hold)) => Ok(self.through(claim, FirstPart::Held(Arc::new(hold)))),
            Asked::Attempt(Attempt::Contended(wake)) => {
                self.leave_second(claim).await?;
                if let (Some(bypass), Queue::Join { .. }) = (&self.bypass, queue) {
                    bypass.note_place(claim.owner);
                }
                Ok(Entry::Answered(Attempt::Contended(self.behind_first(claim, wake))))
            }
            Asked::Attempt(Attempt::AlreadyRun) => Ok(Entry::Answered(Attempt::AlreadyRun)),
            Asked::PassedOver(first) => Ok(self.through(claim, first)),
        }
    }

    /// Where both stores decide, a claim that waits for the second one may lose the first. Whoever has the first one then
    /// waits for the second, so this claim must not stand in line there: each would wait for the other.
    async fn leave_second(&self, claim: &Arc<Claim>) -> Result<()> {
        if self.kind == Kind::Gate || self.passages.get(&claim.owner).is_none() {
            return Ok(());
        }
        let [_, name] = self.kind.names();
        let left = self.second.abandon(&self.for_second(claim)).await;
        // Not asked again by this owner: an abandon that comes late would meet what it wins next.
        left.map_err(|error| told_after(name, error, false).with_retryable(false))?;
        self.passages.take(&claim.owner);
        Ok(())
    }

    /// A gate knows nothing about periods: while a run holds the lock, the gate would answer `Contended` where the authority
    /// answers `AlreadyRun`.
    pub(super) fn skips_first(&self, claim: &Claim) -> bool {
        self.kind == Kind::Gate && claim.once_per.is_some()
    }

    fn through(&self, claim: &Claim, first: FirstPart) -> Entry {
        self.note_passage(claim, first);
        Entry::Through
    }

    /// From now on the claim may ask the second store.
    pub(super) fn note_passage(&self, claim: &Claim, mut first: FirstPart) {
        let had_place = self.bypass.as_ref().is_some_and(|bypass| bypass.forget_place(&claim.owner));
        if had_place && matches!(first, FirstPart::Nothing) {
            // The gate may yet hand the lock over to that place.
            first = FirstPart::Unknown;
        }
        let until = match &first {
            // A little before the lease ends, so that the next waiter hears of it.
            FirstPart::Held(hold) => Validity::new(hold.validity.from, claim.ttl).deadline(),
            FirstPart::Unknown | FirstPart::Nothing => BootInstant::NEVER,
        };
        self.passages.put(claim.owner, Passage { first, until });
    }

    /// Whether a claim that came through the first store still has it. A pushed grant is short until its first renewal.
    async fn still_has(&self, claim: &Claim, passage: Passage) -> bool {
        let FirstPart::Held(hold) = &passage.first else { return true };
        if hold.validity.granted >= claim.ttl {
            return true;
        }
        let bound = self.clock.now().after(self.patience(claim.ttl));
        match self.clock.timeout_at(bound, self.first.renew(&[hold])).await.and_then(|mut answers| answers.pop()) {
            Some(Ok(Standing::Renewed(validity))) => {
                let mut renewed: Hold = hold.for_claim(hold.claim.clone());
                renewed.validity = validity;
                let first = FirstPart::Held(Arc::new(renewed));
                self.passages.put(claim.owner, Passage { first, ..passage });
                true
            }
            Some(Ok(Standing::Lost)) => false,
            // Unknown. The second store decides.
            Some(Err(_)) | None => true,
        }
    }

    async fn ask_first(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Asked> {
        if self.bypass.is_none() {
            let answer = self.first.try_acquire(claim, queue).await;
            return answer.map(Asked::Attempt).map_err(|error| self.by_first(error));
        }
        if self.first_is_passed_over() {
            return Ok(Asked::PassedOver(FirstPart::Nothing));
        }
        let now = self.clock.now();
        let mut patience = self.patience(claim.ttl);
        if let Queue::Join { until, .. } = queue {
            patience = patience.min(until.since(now) / 2);
        }
        match self.clock.timeout_at(now.after(patience), self.first.try_acquire(claim, queue)).await {
            Some(Ok(attempt)) => Ok(Asked::Attempt(attempt)),
            Some(Err(error)) if is_down(&error) => {
                self.first_is_down();
                let may_have_left = error.may_have_left();
                Ok(Asked::PassedOver(if may_have_left { FirstPart::Unknown } else { FirstPart::Nothing }))
            }
            Some(Err(error)) => Err(self.by_first(error)),
            None => {
                self.first_is_down();
                Ok(Asked::PassedOver(FirstPart::Unknown))
            }
        }
    }

    /// For how long a call waits for a store without which it can go on.
    pub(crate) fn patience(&self, ttl: Duration) -> Duration {
        (ttl / 4).min(Duration::from_secs(1))
    }
}

/// What came of the question to the first store.
enum Asked {
    Attempt(Attempt),
    /// It is down.
    PassedOver(FirstPart),
}

/// Whether a store that gives this error is down. Others are answers: waiting for the store would not change them.
fn is_down(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Outage | ErrorKind::NotPrimary)
}
