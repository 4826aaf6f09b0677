//! Connections that leave requests unanswered.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::{BootInstant, Clock};

use super::{Connection, Way};

/// A connection that has left requests unanswered for so long is not used for new ones.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);

impl Connection {
    /// Is it alive, as far as was seen?
    pub fn is_usable(&self, clock: &Clock) -> bool {
        !self.is_dead() && !self.is_silent(SILENCE_LIMIT, clock)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Has it left a request unanswered for so long, with no answer since to any other?
    pub(super) fn is_silent(&self, limit: Duration, clock: &Clock) -> bool {
        let since = self.silent_since.load(Ordering::Relaxed);
        since != 0 && clock.now().since(BootInstant::from_nanos(since)) >= limit
    }

    pub(super) fn fell_silent(&self, since: BootInstant) {
        // A cluster's servers are not silent together; its way knows of each slot.
        if matches!(self.way, Way::Cluster(_)) {
            return;
        }
        let since = since.as_nanos().max(1);
        let _ = self.silent_since.compare_exchange(0, since, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A request under way. One that is given up unanswered leaves word of it.
pub(super) struct AwaitsAnswer<'a> {
    connection: &'a Connection,
    pub(super) since: BootInstant,
}

impl<'a> AwaitsAnswer<'a> {
    pub(super) fn new(connection: &'a Connection, clock: &Clock) -> Self {
        Self { connection, since: clock.now() }
    }

    pub(super) fn answered(self) {
        if self.connection.silent_since.load(Ordering::Relaxed) != 0 {
            self.connection.silent_since.store(0, Ordering::Relaxed);
        }
        std::mem::forget(self);
    }
}

impl Drop for AwaitsAnswer<'_> {
    fn drop(&mut self) {
        self.connection.fell_silent(self.since);
    }
}
