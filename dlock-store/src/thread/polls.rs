//! The polls of tasks in one step of a simulation. Tasks that wake each other for ever end the step.

#[cfg(feature = "simulation")]
pub(crate) use with::{begin_step, counted, end_step, ends_at_rest, run_until_idle, runs_until_idle};
#[cfg(not(feature = "simulation"))]
pub(crate) use without::counted;

#[cfg(not(feature = "simulation"))]
mod without {
    /// A task for our thread.
    pub(crate) const fn counted<T>(task: T) -> T {
        task
    }
}

#[cfg(feature = "simulation")]
mod with {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::task::Waker;

    /// Tasks that wake each other for ever get no more polls than these in one step.
    const MOST_POLLS: u32 = 50;

    thread_local! {
        /// Present while a runtime runs until it has nothing to do. Woken then, and gone.
        static UNTIL_IDLE: RefCell<Option<Waker>> = const { RefCell::new(None) };
        /// The polls of tasks in this step.
        static POLLS: Cell<u32> = const { Cell::new(0) };
    }

    /// A step begins.
    pub(crate) fn begin_step() {
        POLLS.set(0);
    }

    /// Wakes the step that runs until there is nothing to do.
    pub(crate) fn end_step() {
        UNTIL_IDLE.take().into_iter().for_each(Waker::wake);
    }

    /// The step runs until there is nothing to do, and is woken then.
    pub(crate) fn run_until_idle(step: Waker) {
        UNTIL_IDLE.set(Some(step));
    }

    pub(crate) fn runs_until_idle() -> bool {
        UNTIL_IDLE.with_borrow(Option::is_some)
    }

    /// Whether the tasks came to rest by themselves.
    pub(crate) fn ends_at_rest() -> bool {
        POLLS.get() < MOST_POLLS
    }

    /// A task for our thread, whose polls are counted.
    pub(crate) fn counted<T>(
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let mut task = Box::pin(task);
        poll_fn(move |cx| {
            POLLS.set(POLLS.get() + 1);
            if !ends_at_rest() {
                end_step();
            }
            task.as_mut().poll(cx)
        })
    }
}
