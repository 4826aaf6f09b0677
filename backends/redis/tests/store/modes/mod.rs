//! What the Redis backend can do beyond a plain exclusive lock, against a real server.

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
