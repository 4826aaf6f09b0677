//! The seats of a lease at a lock: the numbers that tell the keys of this process apart.
//!
//! A seat is used again once its key is surely gone: until then its place, a hold, or an orphan of the lease has it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dlock_contract::BootInstant;

use super::lease::Lease;

/// Those of one lease at one lock.
#[derive(Default)]
pub(super) struct Seats {
    taken: BTreeSet<u32>,
    /// The seats of kept keys, which are on other leases, and when these are surely over.
    kept: Vec<(u32, BootInstant)>,
}

impl Seats {
    fn take(&mut self, now: BootInstant) -> u32 {
        self.is_taken(now);
        let taken = &mut self.taken;
        let free = (0..).find(|seat| !taken.contains(seat)).unwrap_or(u32::MAX);
        taken.insert(free);
        free
    }

    /// Whether any seat is taken, once those are free whose kept keys are over.
    pub(super) fn is_taken(&mut self, now: BootInstant) -> bool {
        let Self { taken, kept } = self;
        kept.retain(|(seat, until)| {
            let is_kept = now < *until;
            if !is_kept {
                taken.remove(seat);
            }
            is_kept
        });
        !taken.is_empty()
    }
}

/// A seat that is taken. It is free when this is dropped.
pub(super) struct Seat {
    pub(super) number: u32,
    lock: Vec<u8>,
    lease: Weak<Lease>,
    kept_until: Mutex<Option<BootInstant>>,
}

impl Seat {
    /// The lowest one that is free.
    pub(super) fn take(lease: &Arc<Lease>, lock: Vec<u8>, now: BootInstant) -> Self {
        let number = lease.seats().entry(lock.clone()).or_default().take(now);
        Self { number, lock, lease: Arc::downgrade(lease), kept_until: Mutex::default() }
    }

    /// Its key stays there until then, on another lease.
    pub(super) fn keep_until(&self, until: BootInstant) {
        *self.kept_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // With the lease its keys have ended.
        let Some(lease) = self.lease.upgrade() else { return };
        let kept = *self.kept_until.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut all = lease.seats();
        let Some(seats) = all.get_mut(&self.lock) else { return };
        match kept {
            Some(until) => seats.kept.push((self.number, until)),
            None => {
                seats.taken.remove(&self.number);
            }
        }
        if seats.taken.is_empty() {
            all.remove(&self.lock);
        }
    }
}
