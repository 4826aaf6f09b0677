//! At most eight holds in a row go to one process while another one waits for the same key.
//!
//! A process that waits has a shared lock on a file of the key, beside its side file. A process that has had its share tries an exclusive
//! one: if it does not get it, it leaves the key to the others for a moment. The kernel drops the locks of a dead process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};
use dlock_store::{Streaks, background};

use crate::side_files::{Number, SideFiles, number_of};

/// How long the key is left to other processes, which may be stopped.
const TURN_TIME: Duration = Duration::from_millis(50);

/// The keys that this store has held or waited for lately.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The locked files of keys that it waits for.
    waiting: Mutex<HashMap<Number, OwnedFd>>,
    streaks: Streaks,
}

impl Default for Turns {
    fn default() -> Self {
        Self { waiting: Mutex::default(), streaks: Streaks::new(TURN_TIME) }
    }
}

impl Turns {
    /// Whether the caller must leave the key, which may be free, to another process.
    pub(crate) async fn gives_way(&self, side_files: &Arc<SideFiles>, key: &LockKey, now: BootInstant) -> bool {
        if !self.streaks.end_streak_if_over(key, now) {
            return false;
        }
        // A lock of this store's own would be in the way, of another key with this side file.
        let is_own = lock(&self.waiting).contains_key(&number_of(key.as_str()));
        let is_waited_for = !is_own && on_disk(side_files, key, SideFiles::is_waited_for).await.unwrap_or(false);
        match is_waited_for {
            true => self.streaks.gives_way(key, now),
            false => self.streaks.end(key),
        }
        is_waited_for
    }

    /// Notes a hold of this store.
    pub(crate) fn held(&self, key: &LockKey, now: BootInstant) {
        self.waits_no_more(key);
        self.streaks.held(key, now);
    }

    /// Notes that another process has the lock, and that a caller of this one waits.
    pub(crate) async fn refused(&self, side_files: &Arc<SideFiles>, key: &LockKey) {
        self.streaks.end(key);
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
