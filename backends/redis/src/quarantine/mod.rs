//! No grants by a server that may have lost its data in a restart or a failover.
//!
//! Exists because such a server shows locks as free that are still held. Without the quarantine, a restart or a failover
//! would give two callers the same lock. In a cluster only the slots of that server wait; otherwise each failover of one
//! server would stop all locks (ADR 0014).

pub(crate) mod announced;
pub(crate) mod history;
pub(crate) mod rules;
pub(crate) mod server;
pub(crate) mod shards;
pub(crate) mod suspicion;
pub(crate) mod view;
