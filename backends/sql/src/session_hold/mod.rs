//! Locks that live in a session of the server: what they share.

pub(crate) mod monitor_connection;
pub(crate) mod opening;
pub(crate) mod profile;
pub(crate) mod silence;
pub(crate) mod watched_holds;
