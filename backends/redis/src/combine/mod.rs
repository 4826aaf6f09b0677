//! Requests of many tasks, sent together: see `combiner` for what that gives.

pub(crate) mod batch;
pub(crate) mod combiner;
pub(crate) mod joined;
pub(crate) mod releases;
