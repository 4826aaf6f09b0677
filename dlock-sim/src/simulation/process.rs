//! A simulated process: its callers' tasks, its clock, and its threads.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use dlock_runtime::Registry;
use dlock_store::engine::simulation::SimulatedThread;

use crate::backend::Model;
use crate::caller::Caller;
use crate::history::What;
use crate::plan::{Plan, Trouble};
use crate::store::nanos;
use crate::world::{ProcessClock, Shared};

/// A simulated process.
pub(super) struct Process {
    pub(super) number: u32,
    pub(super) thread: &'static SimulatedThread,
    pub(super) clock: ProcessClock,
    pub(super) registry: Option<Registry>,
    /// Its callers begin as this one.
    pub(super) caller: Option<Caller>,
    pub(super) tasks: Vec<Task>,
    pub(super) stands_until: u64,
    /// Whether its own thread may have something to do.
    pub(super) is_poked: bool,
    pub(super) next: Option<u64>,
}

/// A task of a caller, or one of the simulation.
pub(super) struct Task {
    pub(super) future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    pub(super) fn new(future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Some(Box::pin(future)), woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.future.is_some() && self.woken.0.load(Ordering::Relaxed)
    }
}

thread_local!(static THREADS: RefCell<Vec<&'static SimulatedThread>> = const { RefCell::new(Vec::new()) });

/// The threads of a process, used again if the last history has left nothing there.
fn thread() -> &'static SimulatedThread {
    let kept = THREADS.with_borrow_mut(Vec::pop);
    #[expect(clippy::expect_used, reason = "without memory for a runtime there is nothing to simulate")]
    kept.unwrap_or_else(|| SimulatedThread::start().expect("a runtime"))
}

thread_local!(static STANDS: Cell<Option<u64>> = const { Cell::new(None) });

/// Until when the process that has just run stands still, if it does.
pub(super) fn take_stand() -> Option<u64> {
    STANDS.take()
}

/// Lets the process stand still as planned.
pub(super) fn stands(plan: &Plan, process: &Process, world: &Shared) -> impl Future<Output = ()> + 'static {
    let (number, clock, world) = (process.number, process.clock.clone(), world.clone());
    let of_process = plan.trouble.iter().filter_map(|trouble| match trouble {
        Trouble::Stands { process, at, time } if *process + 1 == number as usize => Some((*at, *time)),
        _ => None,
    });
    let mut stands: Vec<_> = of_process.collect();
    stands.sort_unstable();
    async move {
        let start = clock.clock.now();
        for (at, time) in stands {
            clock.clock.sleep_until(start.after(at)).await;
            let until = world.with(|world| world.now) + nanos(time);
            world.with(|world| world.stands(number, until));
            STANDS.set(Some(until));
        }
    }
}

impl Process {
    pub(super) fn begin(plan: &Plan, world: &Shared, clock: ProcessClock, number: u32) -> Self {
        let registry = Registry::with_clock(&clock.clock);
        let model = Model::new(world.clone(), number, clock.clock.clone(), plan.offers);
        #[expect(clippy::expect_used, reason = "the registry is new, and has no other store")]
        registry.install("model", model).expect("the first store");
        let caller = Caller {
            world: world.clone(),
            process: number,
            clock: clock.clone(),
            registry: registry.clone(),
            ttl: plan.ttl,
            offers: plan.offers,
            family: Rc::default(),
            around: Vec::new(),
            bodies: Rc::default(),
            strangers: Rc::default(),
        };
        let of_caller = |which: usize| {
            let own = plan.calls.iter().filter(|call| call.process + 1 == number as usize && call.caller == which);
            own.cloned().collect::<Vec<_>>()
        };
        let callers = (0..3).map(of_caller).filter(|calls| !calls.is_empty());
        let tasks = callers.map(|calls| Task::new(caller.clone().run(calls))).collect();
        Self {
            number,
            thread: thread(),
            clock,
            registry: Some(registry),
            caller: Some(caller),
            tasks,
            stands_until: 0,
            is_poked: false,
            next: None,
        }
    }

    pub(super) fn poll(&mut self, task: usize) {
        let task = &mut self.tasks[task];
        task.woken.0.store(false, Ordering::Relaxed);
        let Some(future) = &mut task.future else { return };
        let waker = Waker::from(task.woken.clone());
        let _runtime = self.thread.callers().enter();
        let polled = self
            .thread
            .enter(|| catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker)))));
        if !matches!(polled, Ok(std::task::Poll::Pending)) {
            let future = task.future.take();
            self.thread.enter(|| drop(future));
        }
        let strangers = self.caller.iter().flat_map(|caller| caller.strangers.take());
        self.tasks.extend(strangers.map(Task::new));
    }

    pub(super) fn shuts_down(&mut self, world: &Shared, at: Duration, within: Duration) {
        let (world, clock, number) = (world.clone(), self.clock.clock.clone(), self.number);
        let Some(registry) = self.registry.clone() else { return };
        self.tasks.push(Task::new(async move {
            clock.sleep_until(clock.now().after(at)).await;
            world.with(|world| world.leaving.insert(number));
            world.add(number, 0, What::ShutsDown);
            let report = registry.shutdown(within).await;
            world.add(number, 0, What::Note(format!("{report:?}")));
            // Locks that are left to their ttl end then, so nothing keeps their sessions alive.
            world.with(|world| world.closes_sessions(number));
        }));
    }

    /// Ends as a program does. Nothing is held any more, so nothing is cut off.
    pub(super) fn leaves(&mut self, world: &Shared) {
        let Some(registry) = self.registry.clone() else { return };
        let (number, world) = (self.number, world.clone());
        self.tasks.clear();
        self.tasks.push(Task::new(async move {
            let report = registry.shutdown(Duration::from_secs(10)).await;
            if report.cut_off + report.left_to_ttl + report.unconfirmed > 0 {
                world.add(number, 0, What::Left(format!("{report:?}")));
            }
        }));
    }

    /// Its threads serve another history, unless something is left there. Says what.
    pub(super) fn thread_ends(&self) -> Option<String> {
        match self.thread.tasks() {
            0 => {
                THREADS.with_borrow_mut(|threads| threads.push(self.thread));
                None
            }
            tasks => Some(format!("{tasks} tasks do not end")),
        }
    }
}
