//! What a claim, or a hold, has in the first store.

use std::sync::Arc;

use dlock_contract::Hold;

/// What a claim, or a hold, has in the first store.
#[derive(Clone, Debug)]
pub(crate) enum FirstPart {
    /// The lock.
    Held(Arc<Hold>),
    /// Nobody knows: it was asked and did not answer. The answer may come late and be a grant.
    Unknown,
    /// Nothing: it was passed over, or it lost the lock.
    Nothing,
}
