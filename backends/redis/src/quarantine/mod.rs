//! No grants by a server that may have lost its data in a restart or a failover.

pub(crate) mod history;
pub(crate) mod rules;
pub(crate) mod server;
pub(crate) mod shards;
pub(crate) mod suspicion;
pub(crate) mod view;
