//! A simulation of dlock's engine: processes with clocks of their own, their callers, a network and a model of a store, in one thread
//! on virtual time. One seed gives one history, byte for byte, and [`check`] says which promises it breaks. See ADR 0049.
//!
//! Not published; `cargo xtask sim` runs it.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod caller;
mod check;
mod draw;
mod history;
mod mutants;
mod plan;
mod shrink;
mod simulation;
mod store;
mod world;

pub use check::{Rule, Violation, check};
pub use draw::draw;
pub use history::{End, Event, Failure, Granted, History, Period, Share, Step, Terms, What, Work, seconds};
pub use mutants::MUTANTS;
pub use plan::Plan;
pub use shrink::shrink;
pub use simulation::run;
pub use store::{LIES, Lie};
