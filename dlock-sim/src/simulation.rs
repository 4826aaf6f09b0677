//! Runs one plan: virtual time, and one thread that does whatever may happen next, in an order that the seed decides.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use dlock_runtime::Registry;
use dlock_store::engine::{simulation::SimulatedThread, simulation::plant};
use fastrand::Rng;

use crate::backend::Model;
use crate::caller::Caller;
use crate::history::{History, What};
use crate::plan::{LENGTH, Lives, Plan, Trouble};
use crate::store::{Store, nanos};
use crate::world::{ProcessClock, Shared};

/// Nothing may take longer than this, once nothing goes wrong any more.
const CALM: Duration = Duration::from_secs(120);

/// Our thread has undone all leftovers within this time, once nothing goes wrong any more.
const UNDONE: Duration = Duration::from_secs(20);

/// Runs a plan. The same plan gives the same history, but for `notes`, which adds the requests for people to read.
#[must_use]
pub fn run(plan: &Plan, notes: bool) -> History {
    fastrand::seed(plan.seed ^ 0x1077);
    plant(plan.mutant);
    let mut simulation = Simulation::begin(plan, notes);
    simulation.live();
    let history = simulation.end(plan);
    plant("");
    history
}

struct Simulation {
    world: Shared,
    random: Rng,
    processes: Vec<Process>,
}

struct Process {
    number: u32,
    thread: &'static SimulatedThread,
    clock: ProcessClock,
    registry: Option<Registry>,
    /// Its callers begin as this one.
    caller: Option<Caller>,
    tasks: Vec<Task>,
    stands_until: u64,
    /// Whether its own thread may have something to do.
    is_poked: bool,
    next: Option<u64>,
}

struct Task {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    fn new(future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Some(Box::pin(future)), woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    fn is_ready(&self) -> bool {
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

impl Simulation {
    fn begin(plan: &Plan, notes: bool) -> Self {
        let clocks: Vec<_> = plan.drifts.iter().map(|drift| ProcessClock::new(*drift)).collect();
        let store = Store::new(plan.lie, plan.offers.lives);
        let world = Shared::new(plan.seed, plan.network, store, clocks.clone(), notes);
        let is_cut = plan.trouble.iter().any(|trouble| matches!(trouble, Trouble::Cut { .. }));
        if plan.network.faults() == 0 && !is_cut {
            world.add(0, 0, What::Faultless);
        }
        let processes = clocks.into_iter().zip(1..).map(|(clock, number)| Process::begin(plan, &world, clock, number));
        let mut processes: Vec<_> = processes.collect();
        for trouble in &plan.trouble {
            match *trouble {
                Trouble::Restart { at, time, forgets } => {
                    let guard = plan.guarded.then_some(plan.ttl);
                    world.with(|world| {
                        world.later(nanos(at), u32::MAX, move |world| world.restart(time, forgets, guard))
                    });
                }
                Trouble::Cut { process, at, time, requests, answers } => world.with(|world| {
                    world.cuts.push((process as u32 + 1, nanos(at)..nanos(at + time), requests, answers));
                    let lost = match (requests, answers) {
                        (true, true) => "requests and answers",
                        (true, false) => "requests",
                        _ => "answers",
                    };
                    let note = format!("{lost} of process {} are lost for {time:?}", process + 1);
                    world.later(nanos(at), 0, move |world| {
                        world.hindered += 1;
                        world.add(0, 0, What::Note(note));
                    });
                }),
                Trouble::Stands { .. } => {}
                Trouble::ShutsDown { process, at, within } => processes[process].shuts_down(&world, at, within),
                Trouble::EndsSessions { process, at } => world.with(|world| {
                    world.later(nanos(at), 0, move |world| world.end_sessions(process as u32 + 1));
                }),
                Trouble::Hints { process, at } => world.with(|world| {
                    world.later(nanos(at), 0, move |world| world.hints(process as u32 + 1));
                }),
            }
        }
        for process in &mut processes {
            process.tasks.push(Task::new(stands(plan, process, &world)));
            if plan.offers.lives != Lives::Alone {
                world.with(|world| world.begins_to_live(process.number, plan.ttl));
            }
        }
        Self { world, random: Rng::with_seed(plan.seed ^ 0x0bde), processes }
    }

    /// Until all callers have come to their end.
    fn live(&mut self) {
        self.go_on(nanos(LENGTH), true);
        self.world.with(crate::world::World::calms_down);
        self.go_on(nanos(CALM), true);
    }

    /// Lets this much time pass. `callers`: or less, until no caller has anything to do.
    fn go_on(&mut self, time: u64, callers: bool) {
        let end = self.world.with(|world| world.now) + time;
        loop {
            self.do_what_can_be_done();
            if callers && self.processes.iter().all(|process| process.tasks.iter().all(|task| task.future.is_none())) {
                return;
            }
            let now = self.world.with(|world| world.now);
            let mut next = self.world.with(|world| world.next_due()).unwrap_or(u64::MAX);
            for process in &mut self.processes {
                process.next = process.clock.next();
                let stands = process.stands_until > now;
                next = next.min(if stands { process.stands_until } else { process.next.unwrap_or(u64::MAX) });
            }
            let next = next.min(end).max(now);
            let processes = &mut self.processes;
            self.world.with(|world| {
                world.advance_to(next);
                world.do_due(|concerned| {
                    for process in processes.iter_mut() {
                        process.is_poked |= concerned == process.number || concerned == u32::MAX;
                    }
                });
            });
            for process in &mut self.processes {
                process.is_poked |= process.next.is_some_and(|due| due <= next);
            }
            if next >= end {
                self.do_what_can_be_done();
                return;
            }
        }
    }

    /// Everything that can be done at this instant, in an order that the seed decides.
    fn do_what_can_be_done(&mut self) {
        let mut choices: Vec<(usize, Option<usize>)> = Vec::new();
        loop {
            let now = self.world.with(|world| world.now);
            choices.clear();
            for (at, process) in self.processes.iter().enumerate().filter(|(_, process)| process.stands_until <= now) {
                if process.is_poked {
                    choices.push((at, None));
                }
                let ready = process.tasks.iter().enumerate().filter(|(_, task)| task.is_ready());
                choices.extend(ready.map(|(task, _)| (at, Some(task))));
            }
            if choices.is_empty() {
                break;
            }
            let (process, task) = choices[self.random.usize(..choices.len())];
            let process = &mut self.processes[process];
            match task {
                Some(task) => {
                    process.poll(task);
                    process.is_poked = true;
                }
                None => {
                    let polls = Some(self.random.u32(..6)).filter(|polls| (1..4).contains(polls));
                    process.thread.step(polls);
                    process.thread.step_callers(polls);
                    process.is_poked = polls.is_some();
                }
            }
            let stands = STANDS.with(|stands| stands.take());
            if stands > 0 {
                process.stands_until = stands;
            }
            if self.world.with(|world| world.now) > now {
                // A body has computed, and clocks have gone on.
                self.processes.iter_mut().for_each(|process| process.is_poked = true);
            }
        }
        self.processes.iter().filter_map(|process| process.caller.as_ref()).for_each(Caller::note_beliefs);
    }

    fn end(mut self, plan: &Plan) -> History {
        let shut_down = plan.trouble.iter().any(|trouble| matches!(trouble, Trouble::ShutsDown { .. }));
        // A shutdown leaves locks to their leases, and places in a queue to the end of their wait.
        let undone = UNDONE + if shut_down { plan.ttl + UNDONE } else { Duration::ZERO };
        self.go_on(nanos(undone), false);
        let left = self.world.with(|world| world.store.held(world.now));
        for key in left {
            self.world.add(0, 0, What::Left(format!("the store has a lock for key {key}")));
        }
        for process in &mut self.processes {
            process.leaves(&self.world);
        }
        self.go_on(nanos(Duration::from_secs(15)), true);
        for process in &mut self.processes {
            process.tasks.clear();
            let last = (process.caller.take(), process.registry.take());
            process.thread.enter(|| drop(last));
            process.is_poked = true;
        }
        // A task may wait for a late answer, but not for longer than the lease.
        self.go_on(nanos(plan.ttl + Duration::from_secs(6)), false);
        for process in self.processes {
            match process.thread.tasks() {
                0 => THREADS.with_borrow_mut(|threads| threads.push(process.thread)),
                tasks => self.world.add(process.number, 0, What::Left(format!("{tasks} tasks do not end"))),
            }
        }
        self.world.with(|world| std::mem::take(&mut world.history))
    }
}

thread_local!(static STANDS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

/// Lets the process stand still as planned.
fn stands(plan: &Plan, process: &Process, world: &Shared) -> impl Future<Output = ()> + 'static {
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
            STANDS.set(until);
        }
    }
}

impl Process {
    fn begin(plan: &Plan, world: &Shared, clock: ProcessClock, number: u32) -> Self {
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

    fn poll(&mut self, task: usize) {
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
    }

    fn shuts_down(&mut self, world: &Shared, at: Duration, within: Duration) {
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
    fn leaves(&mut self, world: &Shared) {
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
}
