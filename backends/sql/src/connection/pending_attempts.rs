//! Attempts that are under way, by owner.
//!
//! Requests on different connections of a pool have no order. If an abandon overtook the attempt that it must undo, it would
//! find nothing, and the attempt would then take the lock for nobody. So an abandon first waits here for the attempt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{Error, Owner, Result};
use dlock_store::Clock;
use tokio::sync::watch;

/// How long an abandon waits for the attempt that it undoes.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The attempts under way.
#[derive(Debug, Default)]
pub(crate) struct PendingAttempts(Mutex<HashMap<Owner, Pending>>);

/// An attempt, as those see it who wait for it.
#[derive(Clone, Debug)]
struct Pending {
    receiver: watch::Receiver<()>,
    is_given_up: Arc<watch::Sender<bool>>,
}

/// One attempt under way. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct PendingAttempt {
    pending_attempts: Arc<PendingAttempts>,
    owner: Owner,
    sender: watch::Sender<()>,
    is_given_up: Arc<watch::Sender<bool>>,
}

impl PendingAttempts {
    /// Records an attempt of this owner. If it begins while [`wait_for`](Self::wait_for) waits for an earlier one, that waits
    /// for this one too.
    pub(crate) fn begin(self: &Arc<Self>, owner: Owner) -> PendingAttempt {
        let ((sender, receiver), is_given_up) = (watch::channel(()), Arc::new(watch::Sender::new(false)));
        self.lock().insert(owner, Pending { receiver, is_given_up: is_given_up.clone() });
        PendingAttempt { pending_attempts: self.clone(), owner, sender, is_given_up }
    }

    /// Waits until no attempt of this owner is under way.
    pub(crate) async fn wait_for(&self, owner: &Owner) {
        let under_way = || self.lock().get(owner).cloned();
        while let Some(mut pending) = under_way() {
            // The value never changes: this ends when the sender is dropped.
            let _ = pending.receiver.changed().await;
        }
    }

    /// Like [`wait_for`](Self::wait_for), for an abandon: it fails if the server takes too long.
    pub(crate) async fn end_in_time(&self, clock: &Clock, owner: &Owner) -> Result<()> {
        let ended = clock.timeout_at(clock.now().after(ATTEMPT_TIMEOUT), self.wait_for(owner)).await;
        ended.ok_or_else(|| Error::outage("the attempt that must be undone has no answer yet"))
    }

    /// Nobody waits for the owner's attempt any more.
    pub(crate) fn give_up(&self, owner: &Owner) {
        if let Some(pending) = self.lock().get(owner) {
            pending.is_given_up.send_replace(true);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Owner, Pending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingAttempt {
    /// Ends when nobody waits for the attempt any more.
    pub(crate) fn given_up(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_given_up = self.is_given_up.subscribe();
        async move {
            // An error: the attempt has ended.
            let _ = is_given_up.wait_for(|is_given_up| *is_given_up).await;
        }
    }
}

impl Drop for PendingAttempt {
    fn drop(&mut self) {
        let mut pending_attempts = self.pending_attempts.lock();
        if pending_attempts
            .get(&self.owner)
            .is_some_and(|pending| pending.receiver.same_channel(&self.sender.subscribe()))
        {
            pending_attempts.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_abandon_waits_for_the_attempt_under_way_and_for_no_other() {
        let pending_attempts = Arc::new(PendingAttempts::default());
        let (one, two) = (Owner::fresh().unwrap(), Owner::fresh().unwrap());
        let pending_attempt = pending_attempts.begin(one);
        assert!(pending_attempts.wait_for(&two).now_or_never().is_some());
        assert!(pending_attempts.wait_for(&one).now_or_never().is_none());
        drop(pending_attempt);
        assert!(pending_attempts.wait_for(&one).now_or_never().is_some());
    }
}
