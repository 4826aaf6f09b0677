//! The mutexes, atomics and wakers of the turn queue, of the state of a hold and of the renewal schedule, and the faults that can be
//! planted there. The models in `tests/interleavings` build the same files with those of shuttle.

pub(crate) use std::sync::atomic::AtomicU8;
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use dlock_store::background;
pub(crate) use dlock_store::engine::simulation::planted;
pub(crate) use dlock_store::engine::{lock_unless_forked, wake};
