//! The session in which the holds of a test live.

use std::sync::atomic::{AtomicBool, Ordering};

use dlock_contract::Session;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// The session of the store's holds. Its end is told when the test says so, and is never certain.
pub(crate) struct Line {
    group: Option<u64>,
    hints: watch::Sender<()>,
    /// Every call of `ended` gives a hint at once.
    pub(crate) noisy: AtomicBool,
}

impl Line {
    pub(super) fn new(group: Option<u64>) -> Self {
        Self { group, hints: watch::Sender::new(()), noisy: AtomicBool::new(false) }
    }

    /// The session may have ended.
    pub(crate) fn hint(&self) {
        self.hints.send_replace(());
    }

    /// How many listen now.
    pub(crate) fn listeners(&self) -> usize {
        self.hints.receiver_count()
    }
}

impl Session for Line {
    fn group(&self) -> Option<u64> {
        self.group
    }

    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        let mut hints = self.hints.subscribe();
        if self.noisy.load(Ordering::Relaxed) {
            hints.mark_changed();
        }
        Some(Box::pin(async move {
            let _ = hints.changed().await;
        }))
    }
}
