//! Whether a store was closed. Nothing is connected afterwards.

use std::sync::atomic::{AtomicBool, Ordering};

use dlock_contract::{Error, Result};

/// Set once. It is set before the connections are ended, so one that is opened or given back meanwhile sees it.
#[derive(Debug, Default)]
pub(crate) struct Closed(AtomicBool);

impl Closed {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Refuses a request that came too late.
    pub(crate) fn refuse(&self) -> Result<()> {
        match self.is_set() {
            true => Err(Error::closed()),
            false => Ok(()),
        }
    }
}
