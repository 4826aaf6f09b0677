//! The profile and the powers of the store with faults.

use std::ops::{Deref, DerefMut};

use dlock_contract::Profile;

/// The profile and the powers of the store. A test switches off what it does not want.
pub(crate) struct Offers {
    profile: Profile,
    pub(crate) keeps: bool,
    pub(crate) periods: bool,
    pub(crate) tokens: bool,
    pub(crate) exchange: bool,
    pub(crate) batch: bool,
    pub(crate) inspect: bool,
    /// Off unless a test asks for it: with it, the end of a hold decides.
    pub(crate) settle: bool,
    /// The group of all holds, where holds live in sessions.
    pub(crate) group: Option<u64>,
}

impl Offers {
    pub(super) fn all(profile: Profile) -> Self {
        Self {
            profile,
            keeps: true,
            periods: true,
            tokens: true,
            exchange: true,
            batch: true,
            inspect: true,
            settle: false,
            group: None,
        }
    }
}

impl Deref for Offers {
    type Target = Profile;

    fn deref(&self) -> &Profile {
        &self.profile
    }
}

impl DerefMut for Offers {
    fn deref_mut(&mut self) -> &mut Profile {
        &mut self.profile
    }
}
