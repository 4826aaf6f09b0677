//! The locks themselves: every request of the contract, over `connections`.

pub(crate) mod acquire;
pub(crate) mod fair;
pub(crate) mod inspect;
pub(crate) mod once_per;
pub(crate) mod profile;
pub(crate) mod release;
pub(crate) mod release_to;
pub(crate) mod renew;
pub(crate) mod replicas;
pub(crate) mod shared;
pub(crate) mod store;
pub(crate) mod together;
