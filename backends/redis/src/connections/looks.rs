//! Knows when a connection's server last reported the history of its data. If that was long ago, the next request also
//! asks for it.
//!
//! A primary that becomes a replica keeps its connections open, and so does a replica that is promoted. A client that sends
//! nothing meanwhile would not notice. The look costs no round trip: it leaves with the request, in one go, and the request's
//! answer counts once that of the look is known.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;
use futures::future::Shared;
use tokio::sync::oneshot;

/// After this long, the next request also carries a check. A server that was a replica for less than that may go
/// unseen.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Ends when the answer to a look has been noted.
pub(crate) type Look = Shared<oneshot::Receiver<()>>;

/// When a connection was looked at.
#[derive(Default)]
pub(crate) struct Looked {
    /// When the last look left that was answered, in nanoseconds; the highest number where the account may not look.
    pub(crate) last: AtomicU64,
    latest: Mutex<Latest>,
    /// Which look was answered last, or failed.
    pub(crate) done: AtomicU64,
}

/// The look that was sent last, if there was one.
#[derive(Default)]
pub(crate) struct Latest {
    pub(crate) number: u64,
    pub(crate) look: Option<Look>,
}

impl Looked {
    pub(crate) fn at(now: BootInstant) -> Self {
        Self { last: AtomicU64::new(now.as_nanos()), ..Self::default() }
    }

    pub(crate) fn is_due(&self, now: BootInstant) -> bool {
        let last = BootInstant::from_nanos(self.last.load(Ordering::Acquire));
        now.since(last) >= LOOK_AFTER
    }

    pub(crate) fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
