//! The two log lines of a guard: it begins, and it is over.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlock_store::line;

/// Whether the log has a line about the beginning of a guard, but none about its end yet.
#[derive(Default)]
pub struct Announced(AtomicBool);

impl Announced {
    /// The server grants nothing for this time, or for longer if a lock with a longer ttl is asked for.
    pub fn begins(&self, server: impl Display, wait: Duration, text: &'static str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            let host = server.to_string();
            line(move || tracing::warn!(host, ?wait, "{text}"));
        }
    }

    /// Notes that the server grants. If no beginning was logged, it costs one load.
    pub fn announce_end(&self, server: impl Display, text: &'static str) {
        if self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed) {
            let host = server.to_string();
            line(move || tracing::warn!(host, "{text}"));
        }
    }
}
