//! The claims that are through the first store and do not yet have the second.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlock_contract::{BootInstant, Owner};

use crate::in_order::first_part::FirstPart;

/// The claims that are through the first store and do not yet have the second. A claim leaves when it is granted or
/// abandoned, so there are no more of them than callers.
#[derive(Debug, Default)]
pub(super) struct Passages(Mutex<HashMap<Owner, Passage>>);

/// How a claim came through the first store.
#[derive(Clone, Debug)]
pub(super) struct Passage {
    pub(super) first: FirstPart,
    /// Until then it may wait for the second store: one ttl after it came through.
    pub(super) until: BootInstant,
}

impl Passages {
    pub(super) fn get(&self, owner: &Owner) -> Option<Passage> {
        self.lock().get(owner).cloned()
    }

    pub(super) fn put(&self, owner: Owner, passage: Passage) {
        self.lock().insert(owner, passage);
    }

    pub(super) fn take(&self, owner: &Owner) -> Option<Passage> {
        self.lock().remove(owner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Passage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
