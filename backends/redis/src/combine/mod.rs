//! Requests of many tasks, sent together.

pub(crate) mod batch;
pub(crate) mod combiner;
pub(crate) mod joined;
pub(crate) mod releases;
