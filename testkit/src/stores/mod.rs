//! The parts that the tests of all stores share. They alone need the contract.

pub mod clock_jumps;
mod closed;
pub mod conformance;
pub mod holds;
mod real_time;

pub use closed::a_closed_store_opens_nothing;
pub use real_time::in_real_time;
