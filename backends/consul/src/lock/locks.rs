//! The state that all requests of a store share: the agent, the claims' sessions, the watch.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{Claim, Error, LockKey, Owner, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};

use crate::api::session::{self, Behavior, Draft};
use crate::lock::name::Name;
use crate::lock::place::{Lease, Place};
use crate::lock::watch::Watch;
use crate::server::http::Http;

/// So many waiters have a blocking query each. Others ask again after a pause.
const WAITERS: usize = 64;

/// The longest name of a session.
const LONGEST_SESSION_NAME: usize = 128;

pub(crate) struct Locks {
    pub(crate) http: Arc<Http>,
    /// All sessions belong to this node, so one list shows them all.
    node: String,
    pub(crate) watch: Arc<Watch>,
    pub(crate) waiters: Arc<Semaphore>,
    /// The traces that each claim may have left in the store.
    places: Mutex<HashMap<Owner, Arc<Place>>>,
}

impl Locks {
    pub(crate) fn new(http: Arc<Http>, node: String) -> Self {
        let watch = Arc::new(Watch::new(&http, node.clone()));
        Self { http, node, watch, waiters: Arc::new(Semaphore::new(WAITERS)), places: Mutex::default() }
    }

    pub(crate) fn name(&self, key: &LockKey) -> Result<Name> {
        Name::of(key, self.http.settings().literal)
    }

    /// Runs requests on dlock's own thread, where the connections live. They run to their end, also if nobody polls or
    /// keeps the returned future.
    pub(crate) fn detached<T: Send + 'static>(
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let (tell, told) = oneshot::channel();
        async move {
            background()?.spawn(async move {
                // The caller may be gone meanwhile.
                let _ = tell.send(work.await);
            });
            told.await.unwrap_or_else(|_| Err(Error::outage("dlock's own thread has ended")))
        }
        .boxed()
    }

    /// The place of a claim; made at its first attempt.
    pub(crate) fn place(&self, claim: &Claim) -> Result<Arc<Place>> {
        if let Some(place) = self.standing(claim.owner) {
            return Ok(place);
        }
        let place = Arc::new(Place::new(self.name(&claim.key)?));
        Ok(self.places().entry(claim.owner).or_insert(place).clone())
    }

    pub(crate) fn standing(&self, owner: Owner) -> Option<Arc<Place>> {
        self.places().get(&owner).cloned()
    }

    /// After a release, which is the last request of a claim.
    pub(crate) fn forget(&self, owner: Owner) {
        self.places().remove(&owner);
    }

    /// Forgets a place that is empty, unless another request of the claim waits for its turn there.
    pub(crate) fn forget_empty(&self, owner: Owner, place: &Arc<Place>) {
        let mut places = self.places();
        // One is the map's, and one the caller's. Others come only through the map.
        if places.get(&owner).is_some_and(|present| Arc::ptr_eq(present, place)) && Arc::strong_count(place) <= 2 {
            places.remove(&owner);
        }
    }

    pub(crate) fn drain(&self) -> Vec<Arc<Place>> {
        self.places().drain().map(|(_, place)| place).collect()
    }

    /// Makes a session for one claim.
    pub(crate) async fn new_session(&self, claim: &Claim) -> Result<Lease> {
        let settings = self.http.settings();
        // If a holder dies, its own keys go. Keys that other tools know stay as those tools leave them.
        let is_literal_lock = settings.literal && !claim.mode.is_shared();
        let behavior = if is_literal_lock { Behavior::Release } else { Behavior::Delete };
        let confirmed = self.http.clock().now();
        let name = claim.key.as_str();
        let name = name.get(..LONGEST_SESSION_NAME).unwrap_or(name);
        let session = self.make(name, claim.ttl, settings.lock_delay, behavior).await?;
        Ok(Lease { session, confirmed })
    }

    /// Makes a session that keeps its keys for at least this time and then deletes them.
    pub(crate) async fn new_timer(&self, ttl: Duration) -> Result<String> {
        self.make("dlock record", ttl, Duration::ZERO, Behavior::Delete).await
    }

    async fn make(&self, name: &str, ttl: Duration, lock_delay: Duration, behavior: Behavior) -> Result<String> {
        let (node, checks) = (Some(self.node.as_str()), &self.http.settings().checks[..]);
        session::create(&self.http, &Draft { name, node, ttl, lock_delay, behavior, checks }).await
    }

    /// Keeps a session alive; false if it has ended.
    pub(crate) async fn keep(&self, lease: &mut Lease) -> Result<bool> {
        let since = session::renew(&self.http, &lease.session).await?;
        lease.confirmed = since.unwrap_or(lease.confirmed);
        Ok(since.is_some())
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
