//! Redis Cluster: slots, keys, and the way to the server of each slot.

pub(crate) mod keys;
pub(crate) mod nodes;
pub(crate) mod plan;
pub(crate) mod servers;
pub(crate) mod way;
