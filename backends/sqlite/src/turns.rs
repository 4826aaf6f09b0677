//! At most eight holds in a row go to one process while another one waits for the same key.
//!
//! A process that waits has a shared lock on a file of the key, beside its side file. A process that has had its share tries an exclusive
//! one: if it does not get it, it leaves the key to the others for a moment. The kernel drops the locks of a dead process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};
use dlock_store::background;

use crate::side_files::{Number, SideFiles, number_of};

/// The most holds that a process has in a row while another process waits.
pub(crate) const MOST_HOLDS: u32 = 8;

/// Holds with a longer pause between them are no streak.
const STREAK_PAUSE: Duration = Duration::from_secs(1);

/// How long the key is left to other processes, which may be stopped. After that, the count of holds begins again.
const TURN_TIME: Duration = Duration::from_millis(50);

/// The most keys that are remembered.
const MOST_KEYS: usize = 4096;

/// The keys that this store has held or waited for lately.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The locked files of keys that it waits for.
    waiting: Mutex<HashMap<Number, OwnedFd>>,
    streaks: Mutex<HashMap<LockKey, Streak>>,
}

#[derive(Debug)]
struct Streak {
    holds: u32,
    last: BootInstant,
    /// Since when the key is left to others.
    given_way: Option<BootInstant>,
}

impl Turns {
    /// Whether the caller must leave the key, which may be free, to another process.
    pub(crate) async fn gives_way(&self, side_files: &Arc<SideFiles>, key: &LockKey, now: BootInstant) -> bool {
        let is_long = |streak: &Streak| streak.holds >= MOST_HOLDS && now.since(streak.last) < STREAK_PAUSE;
        if !lock(&self.streaks).get(key).is_some_and(is_long) {
            return false;
        }
        // A lock of this store's own would be in the way, of another key with this side file.
        let is_own = lock(&self.waiting).contains_key(&number_of(key.as_str()));
        let is_waited_for = !is_own && on_disk(side_files, key, SideFiles::is_waited_for).await.unwrap_or(false);
        let mut streaks = lock(&self.streaks);
        let Some(streak) = streaks.get_mut(key) else { return false };
        let since = *streak.given_way.get_or_insert(now);
        let gives_way = is_waited_for && now.since(since) < TURN_TIME;
        if !gives_way {
            streaks.remove(key);
        }
        gives_way
    }

    /// Notes a hold of this store.
    pub(crate) fn held(&self, key: &LockKey, now: BootInstant) {
        self.waits_no_more(key);
        let mut streaks = lock(&self.streaks);
        if streaks.len() >= MOST_KEYS {
            streaks.retain(|_, streak| now.since(streak.last) < STREAK_PAUSE);
        }
        let before =
            streaks.get(key).filter(|streak| now.since(streak.last) < STREAK_PAUSE).map_or(0, |streak| streak.holds);
        if streaks.len() < MOST_KEYS || streaks.contains_key(key) {
            streaks.insert(key.clone(), Streak { holds: before.saturating_add(1), last: now, given_way: None });
        }
    }

    /// Notes that another process has the lock, and that a caller of this one waits.
    pub(crate) async fn refused(&self, side_files: &Arc<SideFiles>, key: &LockKey) {
        lock(&self.streaks).remove(key);
        let number = number_of(key.as_str());
        if !lock(&self.waiting).contains_key(&number)
            && let Some(file) = on_disk(side_files, key, SideFiles::wait_for).await.flatten()
        {
            lock(&self.waiting).insert(number, file);
        }
    }

    pub(crate) fn waits_no_more(&self, key: &LockKey) {
        lock(&self.waiting).remove(&number_of(key.as_str()));
    }
}

/// Asks the disk on a thread that may wait for it: a disk that hangs must stop neither our thread nor one of the callers.
/// `None` if there is no such thread.
async fn on_disk<T: Send + 'static>(
    side_files: &Arc<SideFiles>,
    key: &LockKey,
    ask: fn(&SideFiles, &str) -> T,
) -> Option<T> {
    let (side_files, key) = (side_files.clone(), key.clone());
    background().ok()?.run_blocking(move || ask(&side_files, key.as_str())).await.ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
