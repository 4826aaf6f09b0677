//! Numbers that differ between the keys of one lease at one lock.
//!
//! A number is used again only when its key surely does not exist. Until then a place, a hold or an orphan owns it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dlock_contract::BootInstant;

use super::lease::Lease;

/// The numbers that are in use at one lock, on one lease.
#[derive(Default)]
pub(super) struct KeyNumbers {
    taken: BTreeSet<u32>,
    /// The numbers of keys that `min_hold` keeps on other leases, and when those leases have surely ended.
    kept: Vec<(u32, BootInstant)>,
}

impl KeyNumbers {
    fn take(&mut self, now: BootInstant) -> u32 {
        self.is_taken(now);
        let taken = &mut self.taken;
        let free = (0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
        taken.insert(free);
        free
    }

    /// Whether any number is in use. Frees those whose kept keys have ended.
    pub(super) fn is_taken(&mut self, now: BootInstant) -> bool {
        let Self { taken, kept } = self;
        kept.retain(|(number, until)| {
            let is_kept = now < *until;
            if !is_kept {
                taken.remove(number);
            }
            is_kept
        });
        !taken.is_empty()
    }
}

/// A number that is in use. Dropping this frees it.
pub(super) struct KeyNumber {
    pub(super) value: u32,
    lock: Vec<u8>,
    lease: Weak<Lease>,
    kept_until: Mutex<Option<BootInstant>>,
}

impl KeyNumber {
    /// Takes the lowest free number.
    pub(super) fn take(lease: &Arc<Lease>, lock: Vec<u8>, now: BootInstant) -> Self {
        let value = lease.key_numbers().entry(lock.clone()).or_default().take(now);
        Self { value, lock, lease: Arc::downgrade(lease), kept_until: Mutex::default() }
    }

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
        let mut all = lease.key_numbers();
        let Some(key_numbers) = all.get_mut(&self.lock) else { return };
        match kept {
            Some(until) => key_numbers.kept.push((self.value, until)),
            None => {
                key_numbers.taken.remove(&self.value);
            }
        }
        if key_numbers.taken.is_empty() {
            all.remove(&self.lock);
        }
    }
}
