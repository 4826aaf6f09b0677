//! Runs one plan: virtual time, and one thread that does whatever may happen next, in an order that the seed decides.

mod panics;
mod process;
mod watchdog;

use std::time::Duration;

use dlock_store::engine::simulation::plant;
use fastrand::Rng;

use self::process::{Process, Task, stands, take_stand};
pub use self::watchdog::watch;
use crate::caller::Caller;
use crate::history::{History, What};
use crate::plan::{LENGTH, Lives, Plan, Trouble};
use crate::store::{Store, nanos};
use crate::world::{ProcessClock, Shared};

/// Nothing may take longer than this, once nothing goes wrong any more.
const CALM: Duration = Duration::from_secs(120);

/// Our thread has undone all leftovers within this time, once nothing goes wrong any more.
const UNDONE: Duration = Duration::from_secs(20);

/// More choices than these at one instant: the engine goes round in circles.
const MOST_CHOICES: u32 = 20_000;

/// Runs a plan. The same plan gives the same history, but for `notes`, which adds the requests for people to read.
#[must_use]
pub fn run(plan: &Plan, notes: bool) -> History {
    let _watched = watchdog::begin(plan);
    fastrand::seed(plan.seed ^ 0x1077);
    panics::count();
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
    /// The last instant at which something was done, and the number of choices there.
    choices: (u64, u32),
}

impl Simulation {
    fn begin(plan: &Plan, notes: bool) -> Self {
        let clocks: Vec<_> = plan.drifts.iter().map(|drift| ProcessClock::new(*drift)).collect();
        let store = Store::new(plan.lie, plan.offers.lives);
        let world = Shared::new(plan.seed, plan.network, store, clocks.clone(), notes);
        let is_fault = |trouble: &Trouble| {
            matches!(trouble, Trouble::Cut { .. } | Trouble::FailsOver { .. } | Trouble::ClockJumps { .. })
        };
        if plan.network.faults() == 0 && !plan.trouble.iter().any(is_fault) {
            world.add(0, 0, What::Faultless);
        }
        let processes = clocks.into_iter().zip(1..).map(|(clock, number)| Process::begin(plan, &world, clock, number));
        let mut processes: Vec<_> = processes.collect();
        world.with(|world| world.plans(plan));
        for trouble in &plan.trouble {
            if let Trouble::ShutsDown { process, at, within } = *trouble {
                processes[process].shuts_down(&world, at, within);
            }
        }
        for process in &mut processes {
            process.tasks.push(Task::new(stands(plan, process, &world)));
            if plan.offers.lives != Lives::Alone {
                world.with(|world| world.begins_to_live(process.number, plan.ttl));
            }
        }
        Self { world, random: Rng::with_seed(plan.seed ^ 0x0bde), processes, choices: (0, 0) }
    }

    /// Whether the engine does not come to rest. Nothing is run any more then.
    fn is_stuck(&self) -> bool {
        self.choices.1 > MOST_CHOICES
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
        while !self.is_stuck() {
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
            if now > self.choices.0 {
                self.choices = (now, 0);
            }
            if self.is_stuck() {
                return;
            }
            self.choices.1 += 1;
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
                    let is_idle = process.thread.step(polls);
                    process.is_poked = !process.thread.step_callers(polls) || !is_idle;
                }
            }
            if let Some(until) = take_stand() {
                process.stands_until = until;
            }
            if self.world.with(|world| world.now) > now {
                // A body has computed, and clocks have gone on.
                self.processes.iter_mut().for_each(|process| process.is_poked = true);
            }
        }
        self.processes.iter().filter_map(|process| process.caller.as_ref()).for_each(Caller::note_beliefs);
    }

    fn end(mut self, plan: &Plan) -> History {
        // A shutdown leaves locks to their leases, and places in a queue to the end of their wait. Nobody frees what a server that
        // has taken over believes to be held still, and a clock that jumps back prolongs leases.
        let shut_down = plan.trouble.iter().any(|trouble| {
            matches!(trouble, Trouble::ShutsDown { .. } | Trouble::FailsOver { .. } | Trouble::ClockJumps { .. })
        });
        let undone = UNDONE + if shut_down { plan.ttl + UNDONE } else { Duration::ZERO };
        self.go_on(nanos(undone), false);
        let left = self.world.with(|world| world.store.held(world.now));
        for key in left.into_iter().filter(|_| !self.is_stuck()) {
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
        if self.is_stuck() {
            self.world.add(0, 0, What::Left("the engine does not come to rest".into()));
            // Its tasks would go on in the next history, so its threads are not used again.
            self.processes.clear();
        }
        for process in &self.processes {
            if let Some(left) = process.thread_ends() {
                self.world.add(process.number, 0, What::Left(left));
            }
        }
        if let Some(panic) = panics::take() {
            self.world.add(0, 0, What::Left(format!("the engine panicked: {panic}")));
        }
        self.world.with(|world| std::mem::take(&mut world.history))
    }
}
