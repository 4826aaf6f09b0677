//! The parts that all requests of a store share: the agent, the states of claims, the watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock_contract::{Claim, LockKey, Result};
use dlock_store::{ClaimStates, Streaks};
use tokio::sync::Semaphore;

use crate::api::session::{self, Behavior, NewSession};
use crate::lock::claim_state::{ClaimSession, ClaimState};
use crate::lock::name::Name;
use crate::lock::watch::Watch;
use crate::server::http::Http;

/// The most blocking queries of waiters. Beyond this, a waiter asks again after a pause. With the other requests, two processes
/// stay below the 200 connections that an agent accepts from one address by default.
const MAX_WAITERS: usize = 32;

/// The longest name of a session, in bytes.
const LONGEST_SESSION_NAME: usize = 128;

/// Fewer states are kept without a look for old ones.
const MIN_STATES_LIMIT: usize = 256;

/// How long the lock is left to a waiter of another process.
pub(crate) const GIVEN_WAY_FOR: Duration = Duration::from_millis(200);

/// The parts that all requests of a store share.
pub(crate) struct Shared {
    pub(crate) http: Arc<Http>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) waiters: Arc<Semaphore>,
    /// A waiter that was passed over leaves a mark, a key of its session. A process that has had its share takes the lock
    /// only if there is no mark.
    pub(crate) streaks: Streaks,
    /// The state of each claim that may have something in the store.
    pub(crate) states: ClaimStates<ClaimState>,
    /// Above this count, the next claim removes old states.
    states_limit: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(http: Arc<Http>) -> Self {
        let watch = Arc::new(Watch::new(&http));
        let states_limit = AtomicUsize::new(MIN_STATES_LIMIT);
        let waiters = Arc::new(Semaphore::new(MAX_WAITERS));
        Self {
            http,
            watch,
            waiters,
            streaks: Streaks::new(GIVEN_WAY_FOR),
            states: ClaimStates::default(),
            states_limit,
        }
    }

    pub(crate) fn name(&self, key: &LockKey) -> Result<Name> {
        Name::of(key, self.http.settings().literal)
    }

    /// The state of a claim. Its first attempt makes it.
    pub(crate) fn state(&self, claim: &Claim) -> Result<Arc<ClaimState>> {
        self.forget_old_states();
        self.states.get_or_make(claim.owner, || Ok(ClaimState::new(self.name(&claim.key)?, claim)))
    }

    /// An outage leaves the states of claims that the engine could not end. Their sessions end by themselves. A hold that is
    /// renewed needs no state.
    fn forget_old_states(&self) {
        if self.states.count() < self.states_limit.load(Ordering::Relaxed) {
            return;
        }
        let now = self.http.clock().now();
        self.states.forget_where(|state| state.is_over(now));
        // Twice as many as are needed, so that most claims do not look at all the others.
        self.states_limit.store(MIN_STATES_LIMIT.max(self.states.count() * 2), Ordering::Relaxed);
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
        session::create(&self.http, &NewSession { name, ttl, lock_delay, behavior }).await
    }

    /// The id of the claim's session, with at least two thirds of its time left. `None`: its session has ended.
    pub(crate) async fn live_session_id(
        &self,
        claim: &Claim,
        session: &mut Option<ClaimSession>,
        is_held: bool,
    ) -> Result<Option<String>> {
        let Some(present) = session else {
            return Ok(Some(session.insert(self.new_session(claim).await?).id.clone()));
        };
        // The grant must be valid from now on, so renew a session that is stale, and one that may hold the lock already.
        let is_fresh = self.http.clock().now() < present.confirmed.after(claim.ttl / 3);
        if (is_fresh && !is_held) || self.keep(present).await? {
            return Ok(Some(present.id.clone()));
        }
        *session = None;
        Ok(None)
    }

    /// Keeps a session alive. False: it has ended.
    pub(crate) async fn keep(&self, session: &mut ClaimSession) -> Result<bool> {
        let since = session::renew(&self.http, &session.id).await?;
        session.confirmed = since.unwrap_or(session.confirmed);
        Ok(since.is_some())
    }
}

#[cfg(test)]
mod tests {
    use dlock_store::{Address, Clock};
    use dlock_testkit::holds::claim;

    use super::*;
    use crate::server::settings::{FORM, Settings};

    #[test]
    fn the_states_of_sessions_that_have_ended_are_forgotten() {
        let clock = Clock::manual();
        let address = Address::parse("consul://127.0.0.1:1", &FORM).unwrap();
        let http = Http::new(Settings::of(&address, |_| None).unwrap(), &clock).unwrap();
        let shared = Shared::new(Arc::new(http));
        let ask = |count| {
            for _ in 0..count {
                let state = shared.state(&claim("many", Duration::from_secs(1))).unwrap();
                *state.session.try_lock().unwrap() = Some(ClaimSession { id: "s".into(), confirmed: clock.now() });
            }
        };
        ask(1000);
        assert_eq!(shared.states.count(), 1000, "a session that lives was forgotten");
        clock.advance(Duration::from_secs(3));
        ask(100);
        assert!(shared.states.count() <= 100, "{}", shared.states.count());
    }
}
