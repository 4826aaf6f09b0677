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
mod schedule;

/// The types of the engine that the files of the queue name.
mod events {
    pub(crate) mod event {
        pub(crate) enum Event {
            NearExpiry { remaining: std::time::Duration },
        }
    }

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
    use std::cell::{Cell, RefCell};
    use std::future::Future;
    use std::task::Waker;

    use shuttle::thread::{self, JoinHandle};

    pub(crate) use shuttle::sync::atomic::AtomicU8;
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    thread_local! {
        /// Shuttle runs all threads of a model on one.
        static PLANTED: Cell<&'static str> = const { Cell::new("") };
        /// The tasks of our own thread: each is a thread of the model.
        static TASKS: RefCell<Vec<JoinHandle<()>>> = const { RefCell::new(Vec::new()) };
    }

    /// Our own thread.
    pub(crate) struct Background;

    pub(crate) fn background() -> dlock_contract::Result<Background> {
        Ok(Background)
    }

    impl Background {
        pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
            let task = thread::spawn(move || shuttle::future::block_on(task));
            TASKS.with_borrow_mut(|tasks| tasks.push(task));
        }
    }

    /// Those of a model that was stopped in the middle.
    pub(crate) fn forget_tasks() {
        TASKS.take();
    }

    pub(crate) fn join_tasks() {
        while let Some(task) = TASKS.with_borrow_mut(Vec::pop) {
            task.join().unwrap();
        }
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
