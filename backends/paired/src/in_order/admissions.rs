//! The claims that may ask the second store and do not hold it yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlock_contract::{BootInstant, Owner};

use crate::in_order::first_hold::FirstHold;

/// The claims that may ask the second store and do not hold it yet. A grant or an abandon removes the claim, so there are no
/// more entries than callers.
#[derive(Debug, Default)]
pub(super) struct Admissions(Mutex<HashMap<Owner, Admission>>);

/// Why a claim may ask the second store.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) first: FirstHold,
    /// The claim may wait for the second store until this time, one ttl after the first store's grant.
    pub(super) until: BootInstant,
}

impl Admissions {
    pub(super) fn get(&self, owner: &Owner) -> Option<Admission> {
        self.lock().get(owner).cloned()
    }

    pub(super) fn put(&self, owner: Owner, admission: Admission) {
        self.lock().insert(owner, admission);
    }

    pub(super) fn take(&self, owner: &Owner) -> Option<Admission> {
        self.lock().remove(owner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Admission>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
