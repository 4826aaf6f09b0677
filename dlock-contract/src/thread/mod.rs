//! Threads and tasks of ours: our thread, work on a caller's runtime, and values of the user's that must not run there.

pub(crate) mod background;
pub(crate) mod claim_states;
pub(crate) mod foreign;
pub(crate) mod library_lines;
pub(crate) mod log;
pub(crate) mod origin;
pub(crate) mod own_thread;
pub(crate) mod per_runtime;
pub(crate) mod simulation;
