//! The fixture of a case: clients, claims, faults, and checks of answers.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{Backend, BootInstant, Claim, Hold, Key, LockKey, Mode, OncePer, Profile, Validity};
use dlock_store::Clock;

use crate::client::Client;
use crate::store::{Outage, Store};
use crate::tested::{SLACK, Stop, Tested, ensure, pause};

/// By then everything that was ended is gone from the store. Much shorter than [`Fixture::long`], after which it would end by itself.
pub(crate) const MOMENT: Duration = Duration::from_secs(10);

/// The store under test, for one run of one case.
pub(crate) struct Fixture<'a> {
    store: &'a dyn Store,
    pub(crate) profile: Profile,
    /// A closed client. It only says which powers the store offers.
    pub(crate) closed: Arc<dyn Backend>,
    pub(crate) clock: Clock,
    pace: u32,
}

impl<'a> Fixture<'a> {
    pub(crate) fn new(store: &'a dyn Store, closed: &Arc<dyn Backend>, pace: u32) -> Self {
        Self { store, profile: closed.profile().clone(), closed: closed.clone(), clock: Clock::system(), pace }
    }

    /// A case that takes longer hangs. The longest takes 5 s alone, and took 75 s beside all other tests on a slow machine.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(120) + self.profile.takeover(self.short()) * 6
    }

    /// A ttl that ends during the case.
    pub(crate) fn short(&self) -> Duration {
        self.ttl(Duration::from_millis(500) * self.pace)
    }

    /// A ttl that ends soon, but not while a request is on its way.
    pub(crate) fn some_seconds(&self) -> Duration {
        self.ttl(Duration::from_secs(10))
    }

    /// A ttl that does not end during a case.
    pub(crate) fn long(&self) -> Duration {
        self.ttl(Duration::from_secs(120))
    }

    fn ttl(&self, wanted: Duration) -> Duration {
        let range = self.profile.ttl;
        let step = range.step.as_nanos().max(1);
        let whole = wanted.max(range.min).as_nanos().div_ceil(step) * step;
        Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX)).min(range.max)
    }

    /// The latest time at which a dead holder's lock must have been granted again.
    pub(crate) fn takeover(&self, ttl: Duration) -> Duration {
        self.profile.takeover(ttl) + SLACK
    }

    /// By then the lock of a holder that has been silent since this grant, which has just come, is free. A renewal that is sent
    /// before could find it held: the server may have begun the lease as late as its answer came, and a store that says how late it
    /// is may be twice as late on a busy machine.
    pub(crate) fn surely_over(&self, validity: Validity) -> BootInstant {
        let late = self.profile.takeover_delay.max(Duration::from_millis(250));
        self.clock.now().after(self.profile.takeover(validity.granted) + late)
    }

    /// The end of a case in which a waiter behind this hold hears nothing of the release, which was just now. If the hold is some
    /// seconds old, the waiter's place may have ended before.
    pub(crate) fn if_unheard(&self, released: &Hold, failure: Stop) -> Stop {
        if self.clock.now() >= released.validity.from.after(SLACK) { Stop::Late } else { failure }
    }

    /// A key that no other case uses.
    pub(crate) fn key(&self) -> Tested<LockKey> {
        literal(&format!("case:{:016x}", fastrand::u64(..)))
    }

    pub(crate) fn claim(&self, key: &LockKey, ttl: Duration) -> Tested<Arc<Claim>> {
        Ok(Arc::new(Claim::new(key.clone(), ttl, &format!("site{:08x}", fastrand::u32(..)))?))
    }

    pub(crate) fn claim_as(&self, mode: Mode, key: &LockKey, ttl: Duration) -> Tested<Arc<Claim>> {
        Ok(Arc::new(Claim::clone(&*self.claim(key, ttl)?).with(|claim| claim.mode = mode)))
    }

    pub(crate) fn claim_once(&self, once: OncePer, key: &LockKey, ttl: Duration) -> Tested<Arc<Claim>> {
        Ok(Arc::new(Claim::clone(&*self.claim(key, ttl)?).with(|claim| claim.once_per = Some(Box::new(once)))))
    }

    /// A claim whose hold is not renewed, so it lives in nothing that it shares with others.
    pub(crate) fn claim_not_renewed(&self, key: &LockKey, ttl: Duration) -> Tested<Arc<Claim>> {
        Ok(Arc::new(Claim::clone(&*self.claim(key, ttl)?).with(|claim| claim.renewed = false)))
    }

    pub(crate) async fn client(&self) -> Tested<Client> {
        self.client_with(self.clock.clone()).await
    }

    pub(crate) async fn client_with(&self, clock: Clock) -> Tested<Client> {
        Ok(Client::new(self.store.open(clock).await?, self.clock.clone()))
    }

    /// A client that reaches only a part of the store.
    pub(crate) async fn client_of_a_part(&self) -> Tested<Client> {
        let Some(opening) = self.store.open_to_a_part(self.clock.clone()) else {
            return Err(Stop::NotApplicable("the store has one part, or needs all of them".into()));
        };
        let backend = opening.await.map_err(|error| harness("could not open a client of a part", error))?;
        Ok(Client::new(backend, self.clock.clone()))
    }

    /// A client with settings of its own.
    pub(crate) async fn client_with_other_settings(&self) -> Tested<Client> {
        let Some(opening) = self.store.open_with_other_settings(self.clock.clone()) else {
            return Err(Stop::NotApplicable("all clients of the store have the same settings".into()));
        };
        let backend = opening.await.map_err(|error| harness("could not open a client with other settings", error))?;
        Ok(Client::new(backend, self.clock.clone()))
    }

    /// A client that would lock the same keys in another way.
    pub(crate) async fn client_in_another_way(&self) -> Tested<Client> {
        let Some(opening) = self.store.open_in_another_way(self.clock.clone()) else {
            return Err(Stop::NotApplicable("the store locks in one way".into()));
        };
        let backend =
            opening.await.map_err(|error| harness("could not open a client that locks in another way", error))?;
        Ok(Client::new(backend, self.clock.clone()))
    }

    /// The entries that the store itself has for the key, sorted.
    pub(crate) async fn leftovers(&self, key: &LockKey) -> Tested<Vec<String>> {
        let mut found =
            self.store.leftovers(key).await.map_err(|error| harness("could not list its entries", error))?;
        found.sort();
        Ok(found)
    }

    /// Fails if the store keeps any entry for the key. A part of the store, such as one of several servers, may be a moment behind
    /// the answer.
    pub(crate) async fn clean(&self, key: &LockKey, after: &str) -> Tested {
        let end = self.clock.now().after(MOMENT);
        loop {
            let asked = self.clock.now();
            let found = self.leftovers(key).await?;
            if found.is_empty() {
                return Ok(());
            }
            ensure!(asked < end, "{after}, the store still has {}", found.join(", "));
            pause(20).await;
        }
    }

    pub(crate) async fn evict(&self, key: &LockKey) -> Tested {
        let Some(evicting) = self.store.evict(key) else {
            return Err(Stop::Skipped("the Store cannot take a lock from its holder".into()));
        };
        evicting.await.map_err(|error| harness("could not take the lock from its holder", error))
    }

    /// Works inside of a hold, as a body would.
    pub(crate) async fn work(&self, hold: &Hold) -> Tested {
        let Some(working) = self.store.work(hold) else {
            return Err(Stop::Skipped("the Store cannot work inside of a hold".into()));
        };
        working.await.map_err(|error| harness("could not work inside of a hold", error))
    }

    /// Whether the work of a hold is final.
    pub(crate) async fn is_final(&self, hold: &Hold) -> Tested<bool> {
        let Some(asking) = self.store.is_final(hold) else {
            return Err(Stop::Skipped("the Store cannot tell whether work is final".into()));
        };
        asking.await.map_err(|error| harness("could not tell whether work is final", error))
    }

    pub(crate) async fn outage(&self, outage: Outage) -> Tested<Box<dyn std::any::Any + Send>> {
        self.outside()?;
        let Some(cutting) = self.store.outage(outage) else {
            return Err(Stop::Skipped(format!("the Store cannot be made unreachable ({outage:?})")));
        };
        cutting.await.map_err(|error| harness("could not be made unreachable", error))
    }

    pub(crate) async fn restart(&self) -> Tested {
        self.outside()?;
        let Some(restarting) = self.store.restart() else {
            return Err(Stop::Skipped("the Store cannot be restarted".into()));
        };
        restarting.await.map_err(|error| harness("could not be restarted", error))
    }

    fn outside(&self) -> Tested {
        if self.store.in_process() {
            return Err(Stop::NotApplicable("the store lives inside this process".into()));
        }
        Ok(())
    }

    /// The token of a hold, if the store promises fencing.
    pub(crate) fn token(&self, hold: &Hold) -> Tested<u64> {
        hold.token.map(std::num::NonZeroU64::get).ok_or_else(|| Stop::Failed("the grant has no fencing token".into()))
    }
}

/// The lock with exactly this name: it does not end with the mark of a value.
pub(crate) fn literal(text: &str) -> Tested<LockKey> {
    let marked = Key::new().value(text).to_string();
    let encoded = marked.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(&marked);
    Ok(LockKey::new("conformance", KeyBuf(encoded.to_owned()))?)
}

fn harness(what: &str, error: impl Display) -> Stop {
    Stop::Failed(format!("the Store {what}: {error}"))
}

/// A request and its reply can fall into one poll by chance, but not this many times.
pub(crate) const TRIES: usize = 5;

/// Polls a future at long intervals. Returns when the last poll began, unless the first poll ended the future. The
/// reply was seen in the last poll at the earliest, and the request left in an earlier one.
pub(crate) async fn slowly<F: Future>(clock: &Clock, future: F) -> (F::Output, Option<BootInstant>) {
    let mut future = std::pin::pin!(future);
    let mut first = true;
    loop {
        let began = clock.now();
        if let std::task::Poll::Ready(output) = futures::poll!(future.as_mut()) {
            return (output, (!first).then_some(began));
        }
        first = false;
        pause(10).await;
    }
}
