//! Threads that meet in the turn queue and at the end of a hold, in thousands of orders ([shuttle](https://docs.rs/shuttle)).
//!
//! The files are the engine's own. Their mutexes, atomics and wakers are shuttle's, which tries other orders at each of them and finds
//! a thread that waits for ever. Each model also finds a fault that is planted there.
#![allow(dead_code, unused_imports, reason = "the models use a part of the queue")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod hold;
mod loss;
mod models;
mod queue;

/// The types of the engine that the files of the queue name.
mod events {
    pub(crate) mod shutdown {
        #[derive(Debug, Default)]
        pub(crate) struct Job(std::sync::Arc<()>);
    }
}

mod options {
    use std::time::Duration;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Cohort {
        pub(crate) passes: u32,
        pub(crate) span: Option<Duration>,
    }
}

mod sync {
    use std::cell::Cell;
    use std::task::Waker;

    pub(crate) use shuttle::sync::atomic::AtomicU8;
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    thread_local! {
        /// Shuttle runs all threads of a model on one.
        static PLANTED: Cell<&'static str> = const { Cell::new("") };
    }

    pub(crate) fn plant(fault: &'static str) {
        PLANTED.set(fault);
    }

    pub(crate) fn planted(fault: &str) -> bool {
        PLANTED.get() == fault
    }

    pub(crate) fn lock_unless_forked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        mutex.lock().ok()
    }

    pub(crate) fn wake(waker: Waker) {
        waker.wake();
    }
}
