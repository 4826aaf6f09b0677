//! The events of the engine, for `tracing` and observers, and the signal of a shutdown.
//!
//! Owns the observers and their thread, the log of stores that fail, and the count of what a shutdown waits for.
//!
//! May know sites; no store, no hold and no control flow: an observer that panics fails no lock.

pub(crate) mod event;
mod line_limit;
pub(crate) mod lines;
pub(crate) mod observe;
pub(crate) mod observer_list;
pub(crate) mod outage_log;
pub(crate) mod requesting;
pub(crate) mod shutdown;
pub(crate) mod spans;
pub(crate) mod store_event;
