//! Redis Cluster: slots, keys, and the way to the server of each slot.

pub(crate) mod client;
pub(crate) mod keys;
pub(crate) mod plan;
pub(crate) mod way;
