//! The way through the first store, and past it while it is down.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Attempt, BootInstant, Claim, Error, ErrorKind, Hold, Queue, Result, Standing, Validity};

use crate::in_order::first_part::FirstPart;
use crate::in_order::passages::Passage;
use crate::in_order::{InOrder, Kind, told_by};

/// What the first store says to a claim.
pub(super) enum Entry {
    /// The claim may ask the second store.
    Through,
    /// The answer to the attempt.
    Answered(Attempt),
}

impl InOrder {
    /// Takes a claim through the first store, unless it is through already.
    pub(super) async fn enter(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Entry> {
        if let Some(passage) = self.passages.get(&claim.owner) {
            if self.clock.now() < passage.until && self.still_has(claim, passage).await {
                return Ok(Entry::Through);
            }
            // It has kept the first store for a ttl and did not get the second. Now others may try.
            let [_, name] = self.kind.names();
            self.second.abandon(&self.for_second(claim)).await.map_err(|error| told_by(name, error))?;
            self.leave(claim).await;
        }
        // A gate knows nothing about periods: while a run holds the lock, the gate would answer `Contended` where the
        // authority answers `AlreadyRun`.
        if self.kind == Kind::Gate && claim.once_per.is_some() {
            return Ok(self.through(claim, FirstPart::Nothing));
        }
        match self.ask_first(claim, queue).await? {
            Asked::Attempt(Attempt::Acquired(hold)) => Ok(self.through(claim, FirstPart::Held(Arc::new(hold)))),
            Asked::Attempt(Attempt::Contended(wake)) => {
                Ok(Entry::Answered(Attempt::Contended(self.behind_first(claim, wake))))
            }
            Asked::Attempt(Attempt::AlreadyRun) => Ok(Entry::Answered(Attempt::AlreadyRun)),
            Asked::PassedOver(first) => Ok(self.through(claim, first)),
        }
    }

    fn through(&self, claim: &Claim, first: FirstPart) -> Entry {
        self.note_passage(claim, first);
        Entry::Through
    }

    /// From now on the claim may ask the second store.
    pub(super) fn note_passage(&self, claim: &Claim, first: FirstPart) {
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
        let [name, _] = self.kind.names();
        let Some(bypass) = &self.bypass else {
            return self
                .first
                .try_acquire(claim, queue)
                .await
                .map(Asked::Attempt)
                .map_err(|error| told_by(name, error));
        };
        if bypass.is_down() {
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
            Some(Err(error)) => Err(told_by(name, error)),
            None => {
                self.first_is_down();
                Ok(Asked::PassedOver(FirstPart::Unknown))
            }
        }
    }

    /// For how long a call waits for a gate without which it can go on.
    pub(super) fn patience(&self, ttl: Duration) -> Duration {
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
