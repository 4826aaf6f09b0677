//! An installed backend: its name, its turns, and where its requests run.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::background::{background, here};
use crate::capabilities::WakeStyle;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::key::{KeyBuf, LockKey};
use crate::local_queue::LocalQueue;

/// A backend under the name it was installed with.
pub(crate) struct Store {
    pub(crate) name: Arc<str>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) queue: Arc<LocalQueue>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({}, {})", self.name, self.backend.kind())
    }
}

/// The longest that one request may take, whatever the ttl.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// The longest that one request about a lock with this ttl may take: an answer after the ttl is worth nothing.
pub(crate) fn request_bound(ttl: Duration) -> Duration {
    ttl.min(LONGEST_REQUEST)
}

impl Store {
    /// Does a release hand the lock to the first of a line, in which a caller may stand without a connection of its own?
    pub(crate) fn hands_on(&self) -> bool {
        let can = self.backend.capabilities();
        can.wake == WakeStyle::Grant && !can.connection_per_hold
    }

    /// The full name of a key in this store.
    pub(crate) fn key(&self, namespace: &str, key: &KeyBuf) -> Result<LockKey> {
        self.backend.name_of(&LockKey::within(namespace, key)?)
    }

    /// Runs a request where its connection lives: in place on the caller's runtime, or on our thread if the caller
    /// has none, or if every hold has a connection of its own, which a blocked runtime would leave unserved.
    pub(crate) async fn ask<T, F>(&self, clock: &Clock, bound: Duration, request: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let deadline = clock.now().after(bound);
        let away = self.backend.capabilities().connection_per_hold || here().is_none();
        let answer = if away {
            clock.timeout_at(deadline, background()?.run(request)).await.map(|ran| ran.and_then(|answer| answer))
        } else {
            clock.timeout_at(deadline, request).await
        };
        answer.unwrap_or_else(|| Err(Error::outage(format!("the store did not answer within {bound:?}"))))
    }
}
