//! The state of one claim: the session that it has in Consul.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use dlock_contract::{BootInstant, Session};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::lock::name::Name;
use crate::lock::watch::Watch;

/// The state of one claim. Its requests run one after the other.
pub(crate) struct ClaimState {
    pub(crate) name: Arc<Name>,
    pub(crate) session: Arc<Mutex<Option<ClaimSession>>>,
}

/// Access to the state of a claim, for one request at a time, in the order of the calls.
pub(crate) type StateAccess = Pin<Box<dyn Future<Output = OwnedMutexGuard<Option<ClaimSession>>> + Send>>;

impl ClaimState {
    pub(crate) fn new(name: Name) -> Self {
        Self { name: Arc::new(name), session: Arc::default() }
    }

    /// Takes the next access to the state. The caller takes it before it spawns the request's task. Otherwise the task of
    /// an abandon, which is spawned on our thread, could run before that of an earlier attempt from another thread.
    pub(crate) async fn next_access(&self) -> StateAccess {
        let mut waiting = Box::pin(self.session.clone().lock_owned());
        match futures::poll!(waiting.as_mut()) {
            Poll::Ready(session) => Box::pin(ready(session)),
            Poll::Pending => waiting,
        }
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
