//! Attempts that are under way, by their owner.
//!
//! The connections of a pool have no order among each other. An abandon that overtakes the attempt which it undoes would
//! find nothing, and the attempt would then take the lock for nobody. So an abandon waits for it here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dlock_contract::Owner;
use tokio::sync::watch;

/// The attempts under way.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashMap<Owner, Aloft>>);

/// An attempt, as those see it who wait for it.
#[derive(Clone, Debug)]
struct Aloft {
    landed: watch::Receiver<()>,
    is_given_up: Arc<watch::Sender<bool>>,
}

/// One attempt. It has landed when this is dropped.
#[derive(Debug)]
pub(crate) struct Flight {
    flights: Arc<Flights>,
    owner: Owner,
    aloft: watch::Sender<()>,
    is_given_up: Arc<watch::Sender<bool>>,
}

impl Flights {
    /// An owner has one attempt at a time. One that begins before the former has landed is waited for too.
    pub(crate) fn begin(self: &Arc<Self>, owner: Owner) -> Flight {
        let ((aloft, landed), is_given_up) = (watch::channel(()), Arc::new(watch::Sender::new(false)));
        self.lock().insert(owner, Aloft { landed, is_given_up: is_given_up.clone() });
        Flight { flights: self.clone(), owner, aloft, is_given_up }
    }

    /// Waits for the owner's attempt, if one is under way.
    pub(crate) async fn landed(&self, owner: &Owner) {
        let under_way = || self.lock().get(owner).cloned();
        while let Some(mut aloft) = under_way() {
            // It never changes: this ends when the sender is dropped.
            let _ = aloft.landed.changed().await;
        }
    }

    /// Nobody waits for the owner's attempt any more.
    pub(crate) fn give_up(&self, owner: &Owner) {
        if let Some(aloft) = self.lock().get(owner) {
            aloft.is_given_up.send_replace(true);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Owner, Aloft>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Ends when nobody waits for the attempt any more.
    pub(crate) fn given_up(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_given_up = self.is_given_up.subscribe();
        async move {
            // An error: it has landed.
            let _ = is_given_up.wait_for(|is_given_up| *is_given_up).await;
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        if flights.get(&self.owner).is_some_and(|aloft| aloft.landed.same_channel(&self.aloft.subscribe())) {
            flights.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn an_abandon_waits_for_the_attempt_under_way_and_for_no_other() {
        let flights = Arc::new(Flights::default());
        let (one, two) = (Owner::fresh().unwrap(), Owner::fresh().unwrap());
        let flight = flights.begin(one);
        assert!(flights.landed(&two).now_or_never().is_some());
        assert!(flights.landed(&one).now_or_never().is_none());
        drop(flight);
        assert!(flights.landed(&one).now_or_never().is_some());
    }
}
