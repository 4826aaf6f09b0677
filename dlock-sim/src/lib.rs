//! A simulation of dlock's engine: processes with clocks of their own, their callers, a network and a model of a store, in one thread
//! on virtual time. One seed gives one history, byte for byte, and [`check`] says which promises it breaks. See ADR 0049.
//!
//! Not published; `cargo xtask sim` runs it. Without the feature `engine` there is the checker alone: `cargo xtask faults` judges runs on
//! real stores by it.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "engine")]
mod backend;
#[cfg(feature = "engine")]
mod caller;
mod check;
mod draw;
mod history;
#[cfg(feature = "engine")]
mod mutants;
#[cfg(feature = "engine")]
mod plan;
#[cfg(feature = "engine")]
mod shrink;
#[cfg(feature = "engine")]
mod simulation;
#[cfg(feature = "engine")]
mod store;
#[cfg(feature = "engine")]
mod world;

pub use check::{Rule, Violation, check, check_within};
pub use draw::draw;
pub use history::{End, Event, Failure, Granted, History, Period, Share, Step, Terms, What, Work, seconds};
#[cfg(feature = "engine")]
pub use mutants::MUTANTS;
#[cfg(feature = "engine")]
pub use plan::{LIES, Lie, Plan};
#[cfg(feature = "engine")]
pub use shrink::shrink;
#[cfg(feature = "engine")]
pub use simulation::{run, watch};
