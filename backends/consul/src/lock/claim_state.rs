//! The state of one claim: the session that it has in Consul.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Session};
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use crate::api::kv::{Entry, Indexed};
use crate::lock::name::Name;
use crate::lock::watch::Watch;

/// The state of one claim. Its requests run one after the other.
pub(crate) struct ClaimState {
    pub(crate) name: Arc<Name>,
    pub(crate) ttl: Duration,
    pub(crate) is_permit: bool,
    pub(crate) session: Arc<Mutex<Option<ClaimSession>>>,
    /// The free lock, as a blocking query has just shown it: the next attempt needs no look.
    free: StdMutex<Option<Indexed<Option<Entry>>>>,
    /// Whether another claim got the lock while this one waited for it.
    pub(crate) is_passed_over: AtomicBool,
    /// Whether the mark of those that were passed over is this claim's.
    pub(crate) is_marked: AtomicBool,
}

/// Access to the state of a claim.
pub(crate) type StateAccess = dlock_store::StateAccess<Option<ClaimSession>>;

impl ClaimState {
    pub(crate) fn new(name: Name, claim: &Claim) -> Self {
        let (ttl, is_permit) = (claim.ttl, claim.mode.is_shared());
        let (is_passed_over, is_marked) = (AtomicBool::new(false), AtomicBool::new(false));
        let (name, session, free) = (Arc::new(name), Arc::default(), StdMutex::default());
        Self { name, ttl, is_permit, session, free, is_passed_over, is_marked }
    }

    pub(crate) async fn next_access(&self) -> StateAccess {
        dlock_store::next_access(&self.session).await
    }

    pub(crate) fn free(&self) -> MutexGuard<'_, Option<Indexed<Option<Entry>>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the servers have ended the session by now, as far as this state knows. They wait for twice the ttl.
    pub(crate) fn is_over(&self, now: BootInstant) -> bool {
        let Ok(session) = self.session.try_lock() else { return false };
        session.as_ref().is_none_or(|session| now > session.confirmed.after(self.ttl * 2))
    }
}

/// The session of one claim. Claims never share a session, because Consul grants a key again to the session that holds it.
#[derive(Clone)]
pub(crate) struct ClaimSession {
    pub(crate) id: String,
    /// When the last request left that created or renewed the session.
    pub(crate) confirmed: BootInstant,
}

/// The session of a hold.
pub(crate) struct HoldSession {
    pub(crate) name: Arc<Name>,
    pub(crate) session_id: String,
    /// Whether the hold is a permit, which has another key than the exclusive lock.
    pub(crate) is_permit: bool,
    pub(crate) watch: Arc<Watch>,
}

impl Session for HoldSession {
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        self.watch.listen(self.session_id.clone())
    }
}
