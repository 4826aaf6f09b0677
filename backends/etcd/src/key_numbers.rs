//! Numbers that differ between the keys of one lease at one lock.
//!
//! A number is used again only when its key surely does not exist. Until then a place, a hold or an orphan owns it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dlock_contract::BootInstant;

/// The numbers that are in use on one lease, by the prefix of a lock's keys.
#[derive(Default)]
pub(super) struct KeyNumbers(Mutex<HashMap<Vec<u8>, LockNumbers>>);

impl KeyNumbers {
    /// Takes the lowest free number at one lock.
    pub(super) fn take(self: &Arc<Self>, lock: Vec<u8>, now: BootInstant) -> KeyNumber {
        let mut locks = self.locks();
        let numbers = locks.entry(lock.clone()).or_default();
        numbers.free_ended(now);
        let value = (0..).find(|number| !numbers.taken.contains(number)).unwrap_or(u32::MAX);
        numbers.taken.insert(value);
        KeyNumber { value, lock, lease: Arc::downgrade(self), kept_until: Mutex::default() }
    }

    /// Frees the numbers whose kept keys have ended.
    pub(super) fn free_ended(&self, now: BootInstant) {
        self.locks().retain(|_, numbers| {
            numbers.free_ended(now);
            !numbers.taken.is_empty()
        });
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<Vec<u8>, LockNumbers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The numbers that are in use at one lock.
#[derive(Default)]
struct LockNumbers {
    taken: BTreeSet<u32>,
    /// The numbers of keys that `min_hold` keeps on other leases, and when those leases have surely ended.
    kept: Vec<(u32, BootInstant)>,
}

impl LockNumbers {
    fn free_ended(&mut self, now: BootInstant) {
        for (number, _) in self.kept.extract_if(.., |(_, until)| *until <= now) {
            self.taken.remove(&number);
        }
    }
}

/// A number that is in use. Dropping this frees it.
pub(super) struct KeyNumber {
    pub(super) value: u32,
    lock: Vec<u8>,
    lease: Weak<KeyNumbers>,
    kept_until: Mutex<Option<BootInstant>>,
}

impl KeyNumber {
    /// Keeps the number in use until this time, because its key stays until then on another lease.
    pub(super) fn keep_until(&self, until: BootInstant) {
        *self.kept_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl Drop for KeyNumber {
    fn drop(&mut self) {
        // If the lease is gone, so are its keys.
        let Some(lease) = self.lease.upgrade() else { return };
        let kept = *self.kept_until.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut locks = lease.locks();
        let Some(numbers) = locks.get_mut(&self.lock) else { return };
        match kept {
            Some(until) => numbers.kept.push((self.value, until)),
            None => {
                numbers.taken.remove(&self.value);
            }
        }
        if numbers.taken.is_empty() {
            locks.remove(&self.lock);
        }
    }
}
