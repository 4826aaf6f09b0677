//! The holds of this process that may be passed on among its callers (`cohort`), by their ids in the store.
//!
//! The store knows such a hold by one id, that of the first caller. In this process each caller has its own id. While a
//! hold is in this table, the id of its first caller must not break it for a later caller, even while the hold is
//! between two callers.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use dlock_contract::HoldId;

use crate::sync::{Mutex, MutexGuard};

/// The holds of one registry.
#[derive(Debug, Default)]
pub(crate) struct CohortHolds(Mutex<HashSet<HoldId>>);

/// One hold of the table. It is listed until the last clone of this is dropped.
#[derive(Debug)]
pub(crate) struct ListedHold {
    list: Arc<CohortHolds>,
    id: HoldId,
}

impl CohortHolds {
    pub(crate) fn add(self: &Arc<Self>, id: HoldId) -> Arc<ListedHold> {
        self.lock().insert(id);
        Arc::new(ListedHold { list: self.clone(), id })
    }

    pub(crate) fn has(&self, id: HoldId) -> bool {
        self.lock().contains(&id)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<HoldId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ListedHold {
    fn drop(&mut self) {
        self.list.lock().remove(&self.id);
    }
}
