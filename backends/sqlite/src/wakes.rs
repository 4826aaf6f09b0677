//! How a release wakes waiters, and how a waiter hears of it.
//!
//! On Linux the kernel notifies the waiters of all processes, by side files. Elsewhere waiters poll.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey, Queue, Result, Signal, Wake, WakeStyle};
use dlock_store::Clock;
use futures::future::BoxFuture;

use crate::file::DatabaseFile;
#[cfg(target_os = "linux")]
use crate::{
    side_files::{SideFiles, number_of},
    turns::Turns,
    watches::Watches,
};

/// A request costs microseconds, so polls are short.
const POLL_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// How a waiter learns of a release.
pub(super) const STYLE: WakeStyle = if cfg!(target_os = "linux") {
    WakeStyle::Hint
} else {
    WakeStyle::Poll { from: POLL_PAUSES.0, to: POLL_PAUSES.1 }
};

/// The longest pause of a waiter that the kernel wakes: its side file may be gone, or a lock freed by hand. A waiting
/// writer renews its mark within this time.
const SAFETY_POLL: Duration = Duration::from_millis(500);

/// A collation that compares nothing: its first operand is a key, and it wakes the waiters of that key. SQLite calls it
/// on the connection's own thread, which may wait for the disk.
///
/// A statement that frees a lock is followed by `SELECT ?1 = '' COLLATE dlock_wake` in the same request. The statement
/// has committed by then, so a woken waiter finds the lock free.
pub(super) const COLLATION: &str = "dlock_wake";

/// The wakes of one store.
#[derive(Debug)]
pub(super) struct Wakes {
    #[cfg(target_os = "linux")]
    side_files: Arc<SideFiles>,
    #[cfg(target_os = "linux")]
    watches: Watches,
    #[cfg(target_os = "linux")]
    turns: Turns,
}

/// Ends at the next release of the key, or of another key with the same side file.
pub(super) type News = BoxFuture<'static, Result<Signal>>;

#[cfg(target_os = "linux")]
impl Wakes {
    pub(super) fn new(database: &Arc<DatabaseFile>, clock: &Clock) -> Self {
        let side_files = Arc::new(SideFiles::new(database.clone()));
        Self { watches: Watches::new(side_files.clone(), clock.clone()), side_files, turns: Turns::default() }
    }

    /// Whether a caller that waits must leave the key to another process.
    pub(super) async fn gives_way(&self, key: &LockKey, now: BootInstant) -> bool {
        self.turns.gives_way(&self.side_files, key, now).await
    }

    /// Notes the answer to a caller that waits, for the turns of other processes.
    pub(super) async fn answered(&self, key: &LockKey, is_held: bool, now: BootInstant) {
        match is_held {
            true => self.turns.held(key, now),
            false => self.turns.refused(&self.side_files, key).await,
        }
    }

    /// Notes that a caller does not wait any more.
    pub(super) fn waits_no_more(&self, key: &LockKey) {
        self.turns.waits_no_more(key);
    }

    /// Wakes the waiters of a key. May block for as long as the disk hangs.
    pub(super) fn tell(&self, key: &str) {
        self.side_files.open(key);
    }

    /// News from now on, if the kernel watches for this key already.
    pub(super) fn listen(&self, key: &LockKey) -> Option<News> {
        let mut news = self.watches.listen(number_of(key.as_str()))?;
        // An error means that the file is not watched any more, so the waiter must ask by itself.
        Some(Box::pin(async move { Ok(news.changed().await.map_or(Signal::Ask, |()| Signal::Ask)) }))
    }

    /// Makes the kernel watch for this key. `None` where that fails.
    pub(super) async fn watch(&self, key: &LockKey) -> Option<News> {
        if self.watches.watch(number_of(key.as_str())).await { self.listen(key) } else { None }
    }

    /// Tells the operator why waiters poll.
    pub(super) async fn finding(&self) -> Option<String> {
        let why = self.watches.failure().await?;
        Some(format!("the kernel does not wake waiters, so they poll every 2 to 50 ms: {why}"))
    }

    pub(super) fn close(&self) {
        self.watches.close();
    }
}

#[cfg(not(target_os = "linux"))]
impl Wakes {
    pub(super) fn new(_: &Arc<DatabaseFile>, _: &Clock) -> Self {
        Self {}
    }

    pub(super) async fn gives_way(&self, _: &LockKey, _: BootInstant) -> bool {
        false
    }

    pub(super) async fn answered(&self, _: &LockKey, _: bool, _: BootInstant) {}

    pub(super) fn waits_no_more(&self, _: &LockKey) {}

    pub(super) fn tell(&self, _: &str) {}

    pub(super) fn listen(&self, _: &LockKey) -> Option<News> {
        None
    }

    pub(super) async fn watch(&self, _: &LockKey) -> Option<News> {
        None
    }

    /// Polling is what the store promises here.
    pub(super) async fn finding(&self) -> Option<String> {
        None
    }

    pub(super) fn close(&self) {}
}

/// The news and the pause of a waiter after a refusal at `now`.
pub(super) fn wake_of(wake: Wake, news: Option<News>, queue: Queue, now: BootInstant) -> Wake {
    let pause = match (&news, STYLE, queue) {
        (Some(_), ..) => SAFETY_POLL.mul_f64(0.5 + fastrand::f64() / 2.0),
        // Here the engine knows the bounds of the poll, and elsewhere it keeps to the caller's.
        (None, WakeStyle::Poll { .. }, _)
        | (None, _, Queue::Leave | Queue::Join { asks_again_within: Some(_), .. }) => {
            return wake;
        }
        (None, ..) => POLL_PAUSES.0 + (POLL_PAUSES.1 - POLL_PAUSES.0).mul_f64(fastrand::f64()),
    };
    let again = now.after(pause);
    let by = wake.ask_by.map_or(again, |by| by.min(again));
    let mut wake = wake.ask_by(by);
    wake.signal = news;
    wake
}
