//! The parts that the tests of all stores share. They alone need the contract.

pub mod clock_jumps;
pub mod conformance;
pub mod holds;
