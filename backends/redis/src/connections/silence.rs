//! Notes requests that a connection leaves unanswered.

use std::sync::atomic::Ordering;

use dlock_contract::{BootInstant, Clock};

use crate::connections::connection::Connection;

/// A request under way. One that is given up unanswered leaves word of it.
pub(crate) struct AwaitsAnswer<'a> {
    connection: &'a Connection,
    pub(crate) since: BootInstant,
}

impl<'a> AwaitsAnswer<'a> {
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

impl Drop for AwaitsAnswer<'_> {
    fn drop(&mut self) {
        self.connection.fell_silent(self.since);
    }
}
