//! Threads and tasks of ours: our thread, work on a caller's runtime, and values of the user's that must not run there.

pub(crate) mod background;
pub(crate) mod foreign;
pub(crate) mod library_lines;
pub(crate) mod log;
pub(crate) mod polls;
pub(crate) mod simulation;
