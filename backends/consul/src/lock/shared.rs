//! The parts that all requests of a store share: the agent, the states of claims, the watch.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::engine::background;
use dlock_contract::{Claim, Error, LockKey, Owner, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};

use crate::api::session::{self, Behavior, NewSession};
use crate::lock::claim_state::{ClaimSession, ClaimState};
use crate::lock::name::Name;
use crate::lock::watch::Watch;
use crate::server::http::Http;

/// The most waiters that have a blocking query each. Beyond this, a waiter asks again after a pause.
const MAX_WAITERS: usize = 64;

/// The longest name of a session, in bytes.
const LONGEST_SESSION_NAME: usize = 128;

/// The parts that all requests of a store share.
pub(crate) struct Shared {
    pub(crate) http: Arc<Http>,
    /// The node of all sessions, so that one query lists them all.
    node: String,
    pub(crate) watch: Arc<Watch>,
    pub(crate) waiters: Arc<Semaphore>,
    /// The state of each claim that may have something in the store.
    states: Mutex<HashMap<Owner, Arc<ClaimState>>>,
}

impl Shared {
    pub(crate) fn new(http: Arc<Http>, node: String) -> Self {
        let watch = Arc::new(Watch::new(&http, node.clone()));
        Self { http, node, watch, waiters: Arc::new(Semaphore::new(MAX_WAITERS)), states: Mutex::default() }
    }

    pub(crate) fn name(&self, key: &LockKey) -> Result<Name> {
        Name::of(key, self.http.settings().literal)
    }

    /// Runs a request on our thread, where the connections are. It goes on if its caller is dropped or not polled, so an
    /// abandon can follow it in order.
    pub(crate) fn detached<T: Send + 'static>(
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let (sender, answer) = oneshot::channel();
        async move {
            background()?.spawn(async move {
                // The caller may have been dropped.
                let _ = sender.send(work.await);
            });
            answer.await.unwrap_or_else(|_| Err(Error::outage("dlock's own thread has ended")))
        }
        .boxed()
    }

    /// The state of a claim. Its first attempt makes it.
    pub(crate) fn state(&self, claim: &Claim) -> Result<Arc<ClaimState>> {
        if let Some(state) = self.existing_state(claim.owner) {
            return Ok(state);
        }
        let state = Arc::new(ClaimState::new(self.name(&claim.key)?));
        Ok(self.states().entry(claim.owner).or_insert(state).clone())
    }

    /// The state of a claim that may have something in the store.
    pub(crate) fn existing_state(&self, owner: Owner) -> Option<Arc<ClaimState>> {
        self.states().get(&owner).cloned()
    }

    /// Forgets a claim after a release, which is its last request.
    pub(crate) fn forget(&self, owner: Owner) {
        self.states().remove(&owner);
    }

    /// Forgets a claim without a session, unless another request of the claim waits for its state.
    pub(crate) fn forget_empty(&self, owner: Owner, state: &Arc<ClaimState>) {
        let mut states = self.states();
        // One reference is the map's, and one the caller's. Others are made only through the map.
        if states.get(&owner).is_some_and(|present| Arc::ptr_eq(present, state)) && Arc::strong_count(state) <= 2 {
            states.remove(&owner);
        }
    }

    pub(crate) fn drain(&self) -> Vec<Arc<ClaimState>> {
        self.states().drain().map(|(_, state)| state).collect()
    }

    /// Creates the session of one claim.
    pub(crate) async fn new_session(&self, claim: &Claim) -> Result<ClaimSession> {
        let settings = self.http.settings();
        // If a holder dies, Consul deletes the key. The key of a literal lock stays, as it does with Consul's own tools.
        let is_literal_lock = settings.literal && !claim.mode.is_shared();
        let behavior = if is_literal_lock { Behavior::Release } else { Behavior::Delete };
        let confirmed = self.http.clock().now();
        let name = claim.key.as_str();
        let name = name.get(..LONGEST_SESSION_NAME).unwrap_or(name);
        let id = self.create_session(name, claim.ttl, settings.lock_delay, behavior).await?;
        Ok(ClaimSession { id, confirmed })
    }

    /// Creates a session that nobody renews. Consul deletes its keys when it ends, after at least this time.
    pub(crate) async fn new_timer(&self, ttl: Duration) -> Result<String> {
        self.create_session("dlock record", ttl, Duration::ZERO, Behavior::Delete).await
    }

    async fn create_session(
        &self,
        name: &str,
        ttl: Duration,
        lock_delay: Duration,
        behavior: Behavior,
    ) -> Result<String> {
        let (node, checks) = (Some(self.node.as_str()), &self.http.settings().checks[..]);
        session::create(&self.http, &NewSession { name, node, ttl, lock_delay, behavior, checks }).await
    }

    /// Keeps a session alive. False: it has ended.
    pub(crate) async fn keep(&self, session: &mut ClaimSession) -> Result<bool> {
        let since = session::renew(&self.http, &session.id).await?;
        session.confirmed = since.unwrap_or(session.confirmed);
        Ok(since.is_some())
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Owner, Arc<ClaimState>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
