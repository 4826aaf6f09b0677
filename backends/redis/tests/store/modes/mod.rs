//! Redis beyond a plain exclusive lock: modes, fair queues, periods and several locks at once.

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
