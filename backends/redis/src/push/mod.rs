//! The connection on which the server pushes grants.

pub(crate) mod listener;
pub(crate) mod pushes;
pub(crate) mod state;
