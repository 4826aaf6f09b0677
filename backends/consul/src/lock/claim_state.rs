//! The state of one claim: the session that it has in Consul.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Session, engine};
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use crate::lock::name::Name;
use crate::lock::watch::Watch;

/// The state of one claim. Its requests run one after the other.
pub(crate) struct ClaimState {
    pub(crate) name: Arc<Name>,
    ttl: Duration,
    pub(crate) is_permit: bool,
    pub(crate) session: Arc<Mutex<Option<ClaimSession>>>,
}

/// Access to the state of a claim.
pub(crate) type StateAccess = engine::StateAccess<Option<ClaimSession>>;

impl ClaimState {
    pub(crate) fn new(name: Name, claim: &Claim) -> Self {
        Self { name: Arc::new(name), ttl: claim.ttl, is_permit: claim.mode.is_shared(), session: Arc::default() }
    }

    pub(crate) async fn next_access(&self) -> StateAccess {
        engine::next_access(&self.session).await
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
