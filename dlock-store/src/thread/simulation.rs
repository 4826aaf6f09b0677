//! The seams of the simulation (the crate `dlock-sim`, ADR 0049): the thread `dlock` of a simulated process, random owners that
//! follow a seed, and planted faults.
//!
//! Without the feature `simulation` each function here is a constant, and the line that asks it is nothing.

#[cfg(feature = "simulation")]
pub(crate) use with::own_thread;
#[cfg(feature = "simulation")]
pub use with::{SimulatedThread, is_here, plant, planted};
#[cfg(not(feature = "simulation"))]
pub(crate) use without::own_thread;
#[cfg(not(feature = "simulation"))]
pub use without::{is_here, planted};

#[cfg(not(feature = "simulation"))]
mod without {
    use crate::thread::background::Background;

    /// Whether this thread runs a simulated process now.
    pub const fn is_here() -> bool {
        false
    }

    /// The thread `dlock` of the simulated process.
    pub(crate) const fn own_thread() -> Option<&'static Background> {
        None
    }

    /// Whether this fault is planted now.
    pub const fn planted(_: &str) -> bool {
        false
    }
}

#[cfg(feature = "simulation")]
mod with {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::task::Poll;

    use dlock_contract::engine::follow_seed;
    use tokio::runtime::{Builder, Handle, Runtime};

    use crate::thread::background::Background;
    use crate::thread::polls::{begin_step, end_step, ends_at_rest, run_until_idle, runs_until_idle};

    thread_local! {
        static OWN_THREAD: Cell<Option<&'static Background>> = const { Cell::new(None) };
        static PLANTED: Cell<&'static str> = const { Cell::new("") };
    }

    /// The threads of one simulated process: `dlock`, and that of its callers. Both are runtimes that stand still until they are
    /// told to go on.
    #[derive(Debug)]
    pub struct SimulatedThread {
        dlock: Runtime,
        callers: Runtime,
        background: Background,
    }

    impl SimulatedThread {
        /// It lives as long as the program, as the real thread does. One that has no tasks left can serve the next history.
        ///
        /// # Errors
        /// When the operating system has no memory for it.
        pub fn start() -> std::io::Result<&'static Self> {
            let (dlock, callers) = (runtime()?, runtime()?);
            let background = Background::of_simulation(dlock.handle().clone());
            Ok(Box::leak(Box::new(Self { dlock, callers, background })))
        }

        /// Does `work` as the code of this process.
        pub fn enter<T>(&'static self, work: impl FnOnce() -> T) -> T {
            struct Before(Option<&'static Background>, bool);
            impl Drop for Before {
                fn drop(&mut self) {
                    OWN_THREAD.set(self.0);
                    follow_seed(self.1);
                }
            }
            let _before = Before(OWN_THREAD.replace(Some(&self.background)), follow_seed(true));
            work()
        }

        /// The runtime in which its callers run.
        pub fn callers(&'static self) -> &'static Handle {
            self.callers.handle()
        }

        /// Runs this many polls of tasks on the thread `dlock`; `None`: as many as there are now, within bounds. Returns whether
        /// none is left.
        pub fn step(&'static self, polls: Option<u32>) -> bool {
            self.enter(|| step(&self.dlock, polls))
        }

        /// Like [`step`](Self::step), for tasks on the runtime of the callers.
        pub fn step_callers(&'static self, polls: Option<u32>) -> bool {
            self.callers.metrics().num_alive_tasks() == 0 || self.enter(|| step(&self.callers, polls))
        }

        /// The tasks that have not ended.
        pub fn tasks(&'static self) -> usize {
            self.dlock.metrics().num_alive_tasks() + self.callers.metrics().num_alive_tasks()
        }
    }

    /// Its order of tasks depends on nothing but their order: tokio's own intervals are all one.
    fn runtime() -> std::io::Result<Runtime> {
        let mut builder = Builder::new_current_thread();
        builder.event_interval(1).global_queue_interval(1).on_thread_park(end_step).build()
    }

    fn step(runtime: &Runtime, polls: Option<u32>) -> bool {
        begin_step();
        let mut left = polls.unwrap_or(1);
        runtime.block_on(poll_fn(|cx| {
            if left == 0 && !runs_until_idle() {
                return Poll::Ready(());
            }
            left = left.saturating_sub(1);
            match polls {
                // Asked again after one task.
                Some(_) => cx.waker().wake_by_ref(),
                None => run_until_idle(cx.waker().clone()),
            }
            Poll::Pending
        }));
        polls.is_none() && ends_at_rest()
    }

    /// Whether this thread runs a simulated process now.
    pub fn is_here() -> bool {
        OWN_THREAD.get().is_some()
    }

    /// The thread `dlock` of the simulated process.
    pub(crate) fn own_thread() -> Option<&'static Background> {
        OWN_THREAD.get()
    }

    /// Plants a fault in the code that this thread runs from now on; an empty name plants none.
    pub fn plant(name: &'static str) {
        PLANTED.set(name);
    }

    /// Whether this fault is planted now.
    pub fn planted(name: &str) -> bool {
        PLANTED.get() == name
    }
}
