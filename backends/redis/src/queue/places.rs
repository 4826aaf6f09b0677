//! The waiters of this process, each with its place in a wait queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Claim, Owner, Result, Session, Signal};
use dlock_store::Clock;
use tokio::sync::Notify;

use crate::queue::grant::{Anchor, Grant};

/// One waiter's place, where its notifications arrive. It exists before the request that joins the wait queue is sent.
#[derive(Debug, Default)]
pub(crate) struct Place {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct News {
    grant: Option<Grant>,
    ask: bool,
    anchor: Option<Anchor>,
    /// The lock was won. A later push is no news, and must not be released as a stray grant.
    won: bool,
}

impl Place {
    pub(crate) fn won(&self) {
        self.news().won = true;
    }

    pub(crate) fn anchored(&self, anchor: Anchor) {
        self.news().anchor = Some(anchor);
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, claim: &Arc<Claim>, clock: &Clock) -> Option<Result<Signal>> {
        let mut news = self.news();
        if let Some(grant) = news.grant.take() {
            let validity = news.anchor.and_then(|anchor| grant.validity(anchor, clock.now()));
            news.won = validity.is_some();
            return Some(match validity {
                Some(validity) => grant.hold(claim, validity).map(Signal::Granted),
                None => Ok(Signal::Ask),
            });
        }
        std::mem::take(&mut news.ask).then_some(Ok(Signal::Ask))
    }
}

/// All places of this process at one server.
#[derive(Debug, Default)]
pub(crate) struct Places {
    table: Mutex<HashMap<Owner, Arc<Place>>>,
    /// Whether any caller has ever waited. A program without contention pays one load.
    used: AtomicBool,
}

impl Places {
    /// The owner's place; made if there is none. It stays until [`dismiss`](Self::dismiss), also between two attempts
    /// and after one whose answer was lost, since a push may come at any time.
    pub(crate) fn enlist(&self, owner: Owner) -> Arc<Place> {
        self.used.store(true, Ordering::Relaxed);
        self.table().entry(owner).or_default().clone()
    }

    pub(crate) fn has(&self, owner: &Owner) -> bool {
        self.used.load(Ordering::Relaxed) && self.table().contains_key(owner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table().is_empty()
    }

    /// Forgets the place. A grant that is pushed to it from now on is released.
    pub(crate) fn dismiss(&self, owner: &Owner) {
        self.table().remove(owner);
    }

    /// Moves a grant to its place; false if nobody waits for it.
    pub(crate) fn deliver(&self, grant: Grant) -> bool {
        let Some(place) = self.table().get(&grant.owner).cloned() else { return false };
        let mut news = place.news();
        if !news.won {
            news.grant = Some(grant);
            drop(news);
            place.changed.notify_one();
        }
        true
    }

    /// Lets one waiter ask, if it waits here.
    pub(crate) fn wake(&self, owner: &Owner) {
        let place = self.table().get(owner).cloned();
        if let Some(place) = place {
            place.news().ask = true;
            place.changed.notify_one();
        }
    }

    /// Lets all waiters ask: news may have been missed, and the server that pushes now may be another one, with another
    /// clock.
    pub(crate) fn wake_all(&self) {
        let places: Vec<_> = self.table().values().cloned().collect();
        for place in places {
            let mut news = place.news();
            (news.ask, news.anchor) = (true, None);
            drop(news);
            place.changed.notify_one();
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a won lock's place until the hold is gone.
#[derive(Debug)]
pub(crate) struct KeptPlace {
    pub(crate) places: Arc<Places>,
    pub(crate) owner: Owner,
}

impl Session for KeptPlace {}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        self.places.dismiss(&self.owner);
    }
}

/// Ends with the next notification for this waiter.
pub(crate) async fn news(place: Arc<Place>, places: Arc<Places>, claim: Arc<Claim>, clock: Clock) -> Result<Signal> {
    loop {
        if let Some(signal) = place.take(&claim, &clock) {
            return signal.map(|signal| match signal {
                Signal::Granted(hold) => {
                    let owner = claim.owner;
                    Signal::Granted(hold.with_session(Arc::new(KeptPlace { places, owner })))
                }
                Signal::Ask => Signal::Ask,
            });
        }
        place.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::grant::Message;
    use dlock_contract::LockKey;
    use std::time::Duration;

    fn grant(at_us: u64) -> Grant {
        grant_to(Owner::fresh().unwrap(), at_us)
    }

    fn grant_to(owner: Owner, at_us: u64) -> Grant {
        let text = format!("{} {at_us} 1000 n {} note", 1_u64 << 50, owner.to_hex());
        let Some(Message::Granted(grant, _)) = Message::parse(text.as_bytes()) else { panic!() };
        grant
    }

    #[test]
    fn a_push_for_a_won_lock_is_neither_news_nor_stray() {
        let places = Places::default();
        let push = grant(1);
        let owner = push.owner;
        places.enlist(owner).won();
        assert!(places.deliver(push));
        assert!(places.enlist(owner).news().grant.is_none());
        places.dismiss(&owner);
        assert!(!places.deliver(grant_to(owner, 1)));
    }

    #[test]
    fn a_push_of_another_server_makes_the_waiter_ask() {
        let clock = Clock::manual();
        let key = LockKey::new("t", dlock_contract::Key::text("k")).unwrap();
        let claim = Arc::new(Claim::new(key, Duration::from_secs(9), "t").unwrap());
        for other in [false, true] {
            let places = Places::default();
            let place = places.enlist(claim.owner);
            place.anchored(Anchor { sent: clock.now(), server_us: 1000 });
            if other {
                places.wake_all();
            }
            assert!(places.deliver(grant_to(claim.owner, 1000)));
            let told = place.take(&claim, &clock).unwrap().unwrap();
            assert_eq!(matches!(told, Signal::Ask), other, "{told:?}");
        }
    }
}
