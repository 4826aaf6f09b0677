//! Notes requests that a connection leaves unanswered.

use std::sync::atomic::Ordering;

use dlock_contract::{BootInstant, Clock};

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
