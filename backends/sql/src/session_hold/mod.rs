//! Holds that live in a session of the server.

pub(crate) mod silence;
pub(crate) mod watched_holds;
