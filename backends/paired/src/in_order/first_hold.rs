//! The part of a claim or a hold that is in the first store.

use std::sync::Arc;

use dlock_contract::Hold;

/// The part of a claim or a hold that is in the first store.
#[derive(Clone, Debug)]
pub(crate) enum FirstHold {
    /// The lock.
    Held(Arc<Hold>),
    /// Unknown: the store did not answer. It may still grant the lock.
    Unknown,
    /// Nothing: the store was bypassed, or has lost the lock.
    Nothing,
}
