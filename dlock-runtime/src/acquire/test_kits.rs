//! The number of test kits, for the error of a call outside of its kit.

use std::sync::atomic::{AtomicUsize, Ordering};

static KITS: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn is_in_use() -> bool {
    KITS.load(Ordering::Relaxed) > 0
}

/// One test kit.
#[derive(Debug)]
pub struct InUse(());

impl InUse {
    /// Counts a kit until it is dropped.
    #[expect(clippy::new_without_default, reason = "each one counts")]
    #[must_use]
    pub fn new() -> Self {
        KITS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        KITS.fetch_sub(1, Ordering::Relaxed);
    }
}
