//! Notes requests that a connection leaves unanswered.
//!
//! Exists because a connection that was cut off silently looks open for ten seconds, and a connection to a paused server
//! looks open for ever. In a cluster, `cluster/nodes` finds both. With one server, each caller passes its own limit to
//! `Connection::is_silent`: the renewal of a short lease must use another connection before the lease ends.

use std::sync::atomic::Ordering;

use dlock_contract::BootInstant;
use dlock_store::Clock;

use crate::connections::connection::Connection;

/// A request under way. If it is given up unanswered, its drop notes the silence.
pub(crate) struct UnansweredRequest<'a> {
    connection: &'a Connection,
    pub(crate) since: BootInstant,
}

impl<'a> UnansweredRequest<'a> {
    pub(crate) fn new(connection: &'a Connection, clock: &Clock) -> Self {
        Self { connection, since: clock.now() }
    }

    pub(crate) fn answered(self) {
        if self.connection.silent_since.load(Ordering::Relaxed) != 0 {
            self.connection.silent_since.store(0, Ordering::Relaxed);
        }
        std::mem::forget(self);
    }
}

impl Drop for UnansweredRequest<'_> {
    fn drop(&mut self) {
        self.connection.fell_silent(self.since);
    }
}
