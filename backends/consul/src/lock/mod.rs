//! Locks on sessions and keys. From the bottom to the top: names and values, the store's shared state, one file for each
//! request.

pub(crate) mod acquire;
pub(crate) mod inspect;
pub(crate) mod locks;
pub(crate) mod name;
pub(crate) mod permits;
pub(crate) mod place;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod value;
pub(crate) mod wait;
pub(crate) mod watch;
