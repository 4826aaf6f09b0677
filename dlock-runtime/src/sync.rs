//! The mutex and the wakers of the turn queue, and the faults that can be planted in it. The models in `tests/interleavings` build the
//! queue's own files with those of shuttle.

pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use dlock_store::engine::simulation::planted;
pub(crate) use dlock_store::engine::wake;
