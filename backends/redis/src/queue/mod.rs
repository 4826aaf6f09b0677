//! The wait queue of a lock, as this process sees it.

pub(crate) mod contended;
pub(crate) mod foreign_clients;
pub(crate) mod grant;
pub(crate) mod limits;
pub(crate) mod places;
