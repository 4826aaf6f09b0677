//! The parts that the tests of all stores share. They alone need the contract.

pub mod clock_jumps;
pub mod conformance;
pub mod holds;
mod real_time;

pub use real_time::in_real_time;
