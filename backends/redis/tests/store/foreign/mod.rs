//! Locks in Redis that are shared with other tools: each keeps the other out, in both directions.

mod account;
mod bench;
mod literal;
mod literal_core;
mod places;
mod python;
mod redisson;
mod rlock;
mod rslock;
mod turns;
