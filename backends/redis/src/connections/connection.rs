//! A connection, and the signs that it is dead or silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dlock_contract::{BootInstant, Origin};
use dlock_store::Clock;

use crate::cluster::way::ClusterWay;
use crate::combine::combiner::Combiner;
use crate::connections::looks::Looked;
use crate::connections::stale::{ClientName, StaleConnections};

/// One connection, shared by all tasks of its runtime.
// Aligned: all threads read it. Beside a value that all threads write, such as a counter, each read would come from another
// processor's cache.
#[repr(align(128))]
pub struct Connection {
    pub(crate) runtime: Origin,
    pub(crate) way: Way,
    /// How often the primary had changed when it was opened.
    pub(crate) switches: u64,
    /// Set by the client when the server has hung up, so that an idle connection's end costs no failed request.
    pub(crate) dead: Arc<AtomicBool>,
    /// Since when a request that was given up or is late has waited, in nanoseconds; 0 after any answer.
    pub(crate) silent_since: AtomicU64,
    pub(crate) looked: Looked,
    pub(crate) named: Arc<ClientName>,
    pub(crate) stale: Arc<StaleConnections>,
}

/// How requests get to their server.
pub(crate) enum Way {
    Server(Arc<Combiner>),
    Cluster(Box<ClusterWay>),
}

/// A connection that has left requests unanswered for this time is not used for new ones.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);

impl Connection {
    /// Whether the connection is alive, as far as was seen.
    pub fn is_usable(&self, clock: &Clock) -> bool {
        !self.is_dead() && !self.is_silent(SILENCE_LIMIT, clock)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Whether a request has been unanswered for `limit`, with no answer to any other request since.
    pub(crate) fn is_silent(&self, limit: Duration, clock: &Clock) -> bool {
        let since = self.silent_since.load(Ordering::Relaxed);
        since != 0 && clock.now().since(BootInstant::from_nanos(since)) >= limit
    }

    pub(crate) fn fell_silent(&self, since: BootInstant) {
        // A cluster's servers are silent one by one. `cluster::nodes` finds them by its own time limit.
        if matches!(self.way, Way::Cluster(_)) {
            return;
        }
        let since = since.as_nanos().max(1);
        let _ = self.silent_since.compare_exchange(0, since, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Drop for Connection {
    /// The runtime has ended, or another connection has taken its place.
    fn drop(&mut self) {
        self.stale.add(&self.named);
    }
}
