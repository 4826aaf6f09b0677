//! Who waits here, and what a pushed grant is worth.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::layout::owner_of;
use super::scripts::{LEAST_TOKEN, TOKEN_END};
use crate::backend::{Claim, Hold, Signal, Validity};
use crate::clock::{BootInstant, Clock};
use crate::error::Result;
use crate::key::LockKey;
use crate::owner::Owner;

/// For how long a lock is handed to a waiter that has not spoken yet: so long a silent one holds up the line. Its first
/// renewal makes it a full ttl.
pub(super) const GRANT_LIMIT: Duration = Duration::from_secs(1);

/// How long a place in line lasts without a new request: a few of the slow polls.
pub(super) const PLACE_LEASE: Duration = Duration::from_secs(5);

/// For how long a key counts as contended: a request then goes to the line at once instead of first to the lock.
const CONTENDED_FOR: Duration = Duration::from_secs(3);

/// So many contended keys are remembered at most.
const CONTENDED_MAX: usize = 4096;

/// A grant that the server has pushed.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) owner: Owner,
    token: u64,
    /// When the server granted it, in µs of its clock.
    at_us: u64,
    granted: Duration,
}

impl Grant {
    /// Reads `<token> <µs> <ms> <name> <value>`. Gives the name and the value too: they are what a release needs.
    pub(super) fn parse(text: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let mut parts = text.splitn(5, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
        let (token, at_us, grant_ms) = (number()?, number()?, number()?);
        let (name, value) = (parts.next()?, parts.next()?);
        let grant = Self { owner: owner_of(value)?, token, at_us, granted: Duration::from_millis(grant_ms) };
        Some((grant, name, value))
    }

    /// Since when and for how long it may be believed; `None` if that must be asked.
    fn validity(&self, anchor: Anchor, now: BootInstant) -> Option<Validity> {
        // Earlier than the latest answer: that answer knew of it, or the server's clock was set back.
        let since_anchor = Duration::from_micros(self.at_us.checked_sub(anchor.server_us)?);
        let from = anchor.sent.after(since_anchor);
        // In the future, or long ago: the push was late, or the server's clock has jumped.
        if from > now || now.since(from) > self.granted / 10 || !(LEAST_TOKEN..TOKEN_END).contains(&self.token) {
            return None;
        }
        Some(Validity { from, granted: self.granted })
    }
}

/// One moment on both clocks: the request left before the server read its own, so what is counted from here is early
/// rather than late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) sent: BootInstant,
    pub(super) server_us: u64,
}

/// Where the news for one waiter arrives. It is there before the request that joins the line is sent.
#[derive(Debug, Default)]
pub(super) struct Place {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct News {
    grant: Option<Grant>,
    ask: bool,
    anchor: Option<Anchor>,
    /// The lock was won: a push that comes later tells nothing new, and must not be taken for a stray one.
    won: bool,
}

impl Place {
    pub(super) fn won(&self) {
        self.news().won = true;
    }

    pub(super) fn anchored(&self, anchor: Anchor) {
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
                Some(validity) => Hold::new(claim.clone(), grant.token, validity).map(Signal::Granted),
                None => Ok(Signal::Ask),
            });
        }
        std::mem::take(&mut news.ask).then_some(Ok(Signal::Ask))
    }
}

/// All places of this process at one server.
#[derive(Debug, Default)]
pub(super) struct Places {
    table: Mutex<HashMap<Owner, Arc<Place>>>,
    /// Has anybody ever waited? A program without contention pays one load.
    used: AtomicBool,
}

impl Places {
    /// The owner's place; made if there is none. It stays until [`dismiss`](Self::dismiss), also between two attempts
    /// and after one whose answer was lost, since a push may come at any time.
    pub(super) fn enlist(&self, owner: Owner) -> Arc<Place> {
        self.used.store(true, Ordering::Relaxed);
        self.table().entry(owner).or_default().clone()
    }

    pub(super) fn has(&self, owner: &Owner) -> bool {
        self.used.load(Ordering::Relaxed) && self.table().contains_key(owner)
    }

    /// Forgets the place: whoever pushes to it from now on is answered by a release.
    pub(super) fn dismiss(&self, owner: &Owner) {
        self.table().remove(owner);
    }

    /// Moves a grant to its place; false if nobody waits for it.
    pub(super) fn deliver(&self, grant: Grant) -> bool {
        let Some(place) = self.table().get(&grant.owner).cloned() else { return false };
        let mut news = place.news();
        if !news.won {
            news.grant = Some(grant);
            drop(news);
            place.changed.notify_one();
        }
        true
    }

    /// Lets everybody ask: news may have been missed.
    pub(super) fn wake_all(&self) {
        let places: Vec<_> = self.table().values().cloned().collect();
        for place in places {
            place.news().ask = true;
            place.changed.notify_one();
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a won lock's place until the hold is gone.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) places: Arc<Places>,
    pub(super) owner: Owner,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.dismiss(&self.owner);
    }
}

/// Ends with the next news for this waiter.
pub(super) async fn news(place: Arc<Place>, places: Arc<Places>, claim: Arc<Claim>, clock: Clock) -> Result<Signal> {
    loop {
        if let Some(signal) = place.take(&claim, &clock) {
            return signal.map(|signal| match signal {
                Signal::Granted(hold) => {
                    let owner = claim.owner;
                    Signal::Granted(hold.with_session(Arc::new(Seat { places, owner })))
                }
                Signal::Ask => Signal::Ask,
            });
        }
        place.changed.notified().await;
    }
}

/// The keys for which others were seen lately.
#[derive(Debug, Default)]
pub(super) struct Contended {
    keys: Mutex<HashMap<LockKey, BootInstant>>,
    /// When the last one was seen, in nanoseconds: a program without contention pays one load.
    last: AtomicU64,
}

impl Contended {
    pub(super) fn note(&self, key: &LockKey, now: BootInstant) {
        self.last.fetch_max(now.as_nanos(), Ordering::Relaxed);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= CONTENDED_MAX {
            keys.retain(|_, seen| now.since(*seen) < CONTENDED_FOR);
        }
        if keys.len() < CONTENDED_MAX || keys.contains_key(key) {
            keys.insert(key.clone(), now);
        }
    }

    pub(super) fn is(&self, key: &LockKey, now: BootInstant) -> bool {
        if now.since(BootInstant::from_nanos(self.last.load(Ordering::Relaxed))) >= CONTENDED_FOR {
            return false;
        }
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get(key).is_some_and(|seen| now.since(*seen) < CONTENDED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: u64 = LEAST_TOKEN + 7;

    fn grant(at_us: u64) -> Grant {
        Grant { owner: Owner::fresh().unwrap(), token: TOKEN, at_us, granted: Duration::from_secs(1) }
    }

    #[test]
    fn a_push_is_read() {
        let owner = Owner::fresh().unwrap();
        let text = format!("{TOKEN} 17 1000 dl1:{{a:b}} {} h=x p=1 s=y t=2", owner.to_hex());
        let (grant, name, value) = Grant::parse(text.as_bytes()).unwrap();
        assert_eq!((grant.owner, grant.token, grant.at_us), (owner, TOKEN, 17));
        assert_eq!((name, &value[33..]), (&b"dl1:{a:b}"[..], &b"h=x p=1 s=y t=2"[..]));
        for bad in ["", "1 2 3 n v", "x 2 3 n v", "-1 2 3 n v", &text[..20]] {
            assert!(Grant::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_push_counts_from_the_anchor_and_never_from_its_arrival() {
        let clock = Clock::manual();
        let sent = clock.now();
        let anchor = Anchor { sent, server_us: 5_000_000 };
        let now = sent.after(Duration::from_millis(320));
        let validity = grant(5_300_000).validity(anchor, now).unwrap();
        assert_eq!(validity.from, sent.after(Duration::from_millis(300)));
        assert_eq!(validity.granted, Duration::from_secs(1));
    }

    #[test]
    fn a_push_that_is_late_early_or_out_of_order_must_be_asked_for() {
        let clock = Clock::manual();
        let anchor = Anchor { sent: clock.now(), server_us: 5_000_000 };
        let now = clock.now().after(Duration::from_millis(320));
        assert!(grant(5_200_000).validity(anchor, now).is_none());
        assert!(grant(5_330_000).validity(anchor, now).is_none());
        assert!(grant(4_999_999).validity(anchor, now).is_none());
        assert!(Grant { token: 3, ..grant(5_300_000) }.validity(anchor, now).is_none());
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
        assert!(!places.deliver(Grant { owner, ..grant(1) }));
    }

    #[test]
    fn contended_keys_are_bounded_and_forgotten() {
        let contended = Contended::default();
        let key = |n: u32| LockKey::new("t", crate::key::Key::text("k").value(&n)).unwrap();
        let now = Clock::manual().now();
        for n in 0..5000 {
            contended.note(&key(n), now);
        }
        assert_eq!(contended.keys.lock().unwrap().len(), CONTENDED_MAX);
        assert!(contended.is(&key(1), now) && !contended.is(&key(4999), now));
        let later = now.after(CONTENDED_FOR);
        assert!(!contended.is(&key(1), later));
        contended.note(&key(4999), later);
        assert!(contended.is(&key(4999), later) && !contended.is(&key(1), later));
        assert_eq!(contended.keys.lock().unwrap().len(), 1);
    }
}
