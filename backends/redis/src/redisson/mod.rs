//! `layout=redisson`: locks that Redisson's `RLock` understands.

pub(crate) mod backend;
pub(crate) mod channels;
pub(crate) mod scripts;
pub(crate) mod store;
