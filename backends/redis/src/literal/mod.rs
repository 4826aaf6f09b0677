//! `keys=literal`: locks under the names that other tools write.

pub(crate) mod backend;
pub(crate) mod store;
pub(crate) mod translate;
