//! The wait queue of a lock, as this process sees it.

pub(crate) mod contended;
pub(crate) mod grant;
pub(crate) mod limits;
pub(crate) mod places;
pub(crate) mod strangers;
