//! The faults of a plan, at their times.

use std::time::Duration;

use super::World;
use crate::history::What;
use crate::plan::{Plan, Trouble};
use crate::store::nanos;

impl World {
    /// Each fault of the store and of the network comes at its time.
    pub(crate) fn plans(&mut self, plan: &Plan) {
        let guard = plan.guarded.then_some(plan.ttl);
        for trouble in &plan.trouble {
            match *trouble {
                Trouble::Restart { at, time, forgets } => {
                    self.later(nanos(at), u32::MAX, move |world| world.restart(time, forgets, guard));
                }
                Trouble::Cut { process, at, time, requests, answers } => {
                    self.cuts.push((process as u32 + 1, nanos(at)..nanos(at + time), requests, answers));
                    let lost = match (requests, answers) {
                        (true, true) => "requests and answers",
                        (true, false) => "requests",
                        _ => "answers",
                    };
                    let note = format!("{lost} of process {} are lost", process + 1);
                    let end = format!("end of: {note}");
                    self.later(nanos(at), 0, move |world| {
                        world.hindered += 1;
                        world.add(0, 0, What::Note(note));
                    });
                    self.later(nanos(at + time), 0, move |world| world.add(0, 0, What::Note(end)));
                }
                Trouble::EndsSessions { process, at } => {
                    self.later(nanos(at), 0, move |world| world.end_sessions(process as u32 + 1));
                }
                Trouble::Hints { process, at } => {
                    self.later(nanos(at), 0, move |world| world.hints(process as u32 + 1));
                }
                Trouble::FailsOver { at, time, lacks } => {
                    let copied = at.saturating_sub(lacks);
                    self.later(nanos(copied), 0, |world| world.store.copy(world.now));
                    self.later(nanos(at), u32::MAX, move |world| world.fails_over(time, guard));
                }
                Trouble::ClockJumps { at, by, forward } => {
                    self.later(nanos(at), u32::MAX, move |world| world.clock_jumps(by, forward));
                }
                Trouble::Stands { .. } | Trouble::ShutsDown { .. } => {}
            }
        }
    }

    /// Another server takes over after a time. It does not know what was done last.
    fn fails_over(&mut self, time: Duration, guard: Option<Duration>) {
        if self.is_calm() {
            return;
        }
        self.store.down_until = self.now + nanos(time);
        self.hindered += 1;
        self.add(0, 0, What::Restarts { time: nanos(time), forgets: true });
        let forgotten = self.store.fail_over(self.now);
        match guard {
            // It cannot know what it lacks.
            Some(ttl) => self.store.guard_until = self.now + nanos(time + ttl),
            None => self.forgets(forgotten),
        }
    }

    fn clock_jumps(&mut self, by: Duration, forward: bool) {
        if self.is_calm() {
            return;
        }
        let way = if forward { "forward" } else { "back" };
        self.add(0, 0, What::Note(format!("the store's clock jumps {way} by {by:?}")));
        self.hindered += 1;
        let ended = self.store.clock_jumps(by, forward, self.now);
        self.forgets(ended);
        for key in self.store.keys() {
            self.serve(key);
        }
    }

    fn forgets(&mut self, holds: Vec<(u32, u64)>) {
        for (key, token) in holds {
            self.add(0, 0, What::Forgets { key: Some(key), from: token, to: token });
        }
    }
}
