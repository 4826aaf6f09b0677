//! The mutexes, atomics and tasks of the combiner, and the faults that can be planted there. The models in
//! `tests/interleavings` build the same files with those of shuttle.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use dlock_store::{CallerRuntime, background};
pub(crate) use tokio::task::yield_now;
pub(crate) use tokio::time::sleep;

/// Whether this fault is planted now. Only a model plants faults.
pub(crate) const fn planted(_: &str) -> bool {
    false
}
