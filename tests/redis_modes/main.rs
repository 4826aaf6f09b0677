//! What the Redis backend can do beyond a plain exclusive lock, against a real server.

#[path = "../holds/mod.rs"]
mod holds;

mod bench;
mod conflicts;
mod core;
mod memory;
mod order;
mod periods;
mod permits;
mod polling;
mod readers;
mod silent;
mod stress;
mod together;
