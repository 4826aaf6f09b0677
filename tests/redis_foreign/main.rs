//! Locks in Redis that are shared with other tools: each keeps the other out, in both directions.

#[path = "../holds/mod.rs"]
mod holds;
#[path = "../redsync/mod.rs"]
mod redsync_peer;
#[path = "../rights/mod.rs"]
mod rights;

mod bench;
mod literal;
mod literal_core;
mod places;
mod python;
mod redisson;
mod redsync;
mod rlock;
mod rslock;
mod turns;
