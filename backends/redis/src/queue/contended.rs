//! Keys that are contended: another owner was seen there lately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey};

/// The keys for which other owners were seen lately.
#[derive(Debug, Default)]
pub(crate) struct Contended {
    keys: Mutex<HashMap<LockKey, BootInstant>>,
    /// When another owner was last seen, in nanoseconds. A program without contention pays one load.
    last: AtomicU64,
}

impl Contended {
    pub(crate) fn note(&self, key: &LockKey, now: BootInstant) {
        self.last.fetch_max(now.as_nanos(), Ordering::Relaxed);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= CONTENDED_MAX {
            keys.retain(|_, seen| now.since(*seen) < CONTENDED_FOR);
        }
        if keys.len() < CONTENDED_MAX || keys.contains_key(key) {
            keys.insert(key.clone(), now);
        }
    }

    pub(crate) fn is(&self, key: &LockKey, now: BootInstant) -> bool {
        if now.since(BootInstant::from_nanos(self.last.load(Ordering::Relaxed))) >= CONTENDED_FOR {
            return false;
        }
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get(key).is_some_and(|seen| now.since(*seen) < CONTENDED_FOR)
    }
}

/// How long a key counts as contended. A request then goes straight to the wait queue instead of first to the lock.
const CONTENDED_FOR: Duration = Duration::from_secs(3);

/// The most contended keys that are remembered.
const CONTENDED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_store::Clock;

    #[test]
    fn contended_keys_are_bounded_and_forgotten() {
        let contended = Contended::default();
        let key = |n: u32| LockKey::new("t", dlock_contract::Key::text("k").value(&n)).unwrap();
        let now = Clock::manual().now();
        for n in 0..5000 {
            contended.note(&key(n), now);
        }
        assert_eq!(contended.keys.lock().unwrap().len(), CONTENDED_MAX);
        assert!(contended.is(&key(1), now) && !contended.is(&key(4999), now));
        let later = now.after(CONTENDED_FOR);
        assert!(!contended.is(&key(1), later));
        contended.note(&key(4999), later);
        assert!(contended.is(&key(4999), later) && !contended.is(&key(1), later));
        assert_eq!(contended.keys.lock().unwrap().len(), 1);
    }
}
