//! The meaning of a seed: a plan that is drawn from it.

use std::time::Duration;

use fastrand::Rng;

use super::{Fate, Form, Lie, Lives, Network, Offers, Plan, PlannedCall, Step, Trouble, Waiting};
use crate::history::{Period, Share};

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut r = Rng::with_seed(seed ^ 0x5eed);
        let processes = r.usize(1..=3);
        let keys: Vec<_> = (0..r.u32(1..=3)).map(|_| Share::draw(&mut r)).collect();
        let ttl = ms([300, 1000, 1000, 3000, 60_000][r.usize(..5)]);
        let drifts = (0..processes).map(|_| if r.bool() { r.i64(-4000..=4000) } else { 0 }).collect();
        let network = Network::draw(&mut r);
        let offers = Offers::draw(&mut r);
        let callers: Vec<_> = (0..processes).map(|_| r.usize(1..=3)).collect();
        // In some histories the faults come until shortly before their end, and the callers have enough to do.
        let is_long = r.u32(..4) == 0;
        let count = if is_long { r.usize(30..=60) } else { r.usize(6..=24) };
        let period = [0, 0, 1_000_000_000, 5_000_000_000, 30_000_000_000][r.usize(..5)];
        let latest = if is_long { 45_000 } else { 15_000 };
        let mut draw = Draw { r, processes, keys, ttl, period, offers, latest };
        let mut calls: Vec<_> = (0..count)
            .map(|_| {
                let process = draw.r.usize(..processes);
                let caller = draw.r.usize(..callers[process]);
                draw.call(process, caller, 1)
            })
            .collect();
        // All begin early in some histories, so that they meet.
        let longest = [500, 2000, 10_000][draw.r.usize(..3)];
        calls.iter_mut().for_each(|call| call.pause = ms(draw.r.u64(0..longest)));
        let trouble = (0..draw.r.usize(0..=3)).map(|_| draw.trouble()).collect();
        let guarded = draw.r.bool();
        Self { seed, ttl, offers, guarded, drifts, network, calls, trouble, mutant: "", lie: Lie::Honest }
    }
}

impl Network {
    fn draw(r: &mut Rng) -> Self {
        let latency = ms([2, 2, 20, 120][r.usize(..4)]);
        // In some histories all requests arrive, and in some nearly none goes as it should.
        let storm = [0, 1, 1, 4][r.usize(..4)];
        let mut often = |most: u32| if r.bool() { r.u32(0..=most * storm) } else { 0 };
        Self { latency, lost: often(60), answer_lost: often(60), late: often(60), twice: often(60), refused: often(40) }
    }
}

impl Offers {
    fn draw(r: &mut Rng) -> Self {
        let waiting = [Waiting::Polls, Waiting::Hears, Waiting::Queues, Waiting::Queues][r.usize(..4)];
        let lives = [Lives::Alone, Lives::Alone, Lives::InSharedSession, Lives::InOwnSession][r.usize(..4)];
        let (exchange, settles) = (r.bool(), lives == Lives::InOwnSession && r.bool());
        let (tokens, batch) = (!settles && r.bool(), r.bool());
        let own_thread = lives == Lives::InOwnSession && r.bool();
        Self { waiting, lives, exchange, tokens, batch, settles, own_thread }
    }
}

impl Share {
    /// The kind of a lock.
    fn draw(r: &mut Rng) -> Self {
        match r.u32(..6) {
            0..4 => Self::Exclusive,
            4 => Self::Read,
            _ => Self::Permit { of: r.u32(1..=3) },
        }
    }
}

/// The parts of a plan that its calls and its trouble depend on.
struct Draw {
    r: Rng,
    processes: usize,
    /// Beside whom each of them may be held.
    keys: Vec<Share>,
    ttl: Duration,
    /// The length of the periods in which some calls run once, in nanoseconds; zero for none.
    period: u64,
    offers: Offers,
    /// The last time of a fault, in milliseconds.
    latest: u64,
}

impl Draw {
    fn trouble(&mut self) -> Trouble {
        let Self { r, processes, ttl, offers, latest, .. } = self;
        let at = ms(r.u64(0..*latest));
        let time = (*ttl).min(ms(4000)).mul_f64(r.f64() * 3.0);
        let process = r.usize(..*processes);
        if offers.lives != Lives::Alone && r.u32(..3) == 0 {
            return if r.u32(..4) == 0 {
                Trouble::Hints { process, at }
            } else {
                Trouble::EndsSessions { process, at }
            };
        }
        if offers.lives == Lives::Alone && r.u32(..5) == 0 {
            return if r.bool() {
                Trouble::FailsOver { at, time: ms(r.u64(1..3000)), lacks: ms(r.u64(1..5000)) }
            } else {
                Trouble::ClockJumps { at, by: (*ttl).min(ms(5000)).mul_f64(r.f64()), forward: r.bool() }
            };
        }
        match r.u32(..11) {
            8.. => {
                let way = r.u32(..3);
                Trouble::Cut { process, at, time: ms(r.u64(1..8000)), requests: way != 0, answers: way != 1 }
            }
            0..4 => Trouble::Stands { process, at, time },
            4..6 => Trouble::Restart { at, time: ms(r.u64(1..3000)), forgets: r.bool() },
            6 => Trouble::Restart { at, time: ms(r.u64(3000..15_000)), forgets: false },
            _ => Trouble::ShutsDown { process, at, within: ms(r.u64(0..3000)) },
        }
    }

    /// `nests`: how deep calls may stand inside of it.
    fn call(&mut self, process: usize, caller: usize, nests: u32) -> PlannedCall {
        let steps = (0..self.r.usize(0..=3)).map(|_| self.step(process, caller, nests)).collect();
        let Self { r, keys, offers, ttl, period, .. } = self;
        let mut order: Vec<_> = (0..keys.len() as u32).collect();
        r.shuffle(&mut order);
        // Several keys are for guards alone: the attribute's future takes them the same way.
        order.truncate(if r.u32(..5) == 0 { keys.len() } else { 1 });
        let form = [Form::Run, Form::Run, Form::RunOn, Form::Guard, Form::DroppedGuard][r.usize(..5)];
        let form = match order.len() {
            1 if r.u32(..12) == 0 => Form::Leads,
            1 => form,
            _ => Form::Guard,
        };
        let share = match keys[order[0] as usize] {
            _ if r.u32(..100) == 0 => Share::draw(r),
            Share::Read | Share::Write => [Share::Read, Share::Read, Share::Write][r.usize(..3)],
            share => share,
        };
        let share = if form == Form::Leads { Share::Exclusive } else { share };
        // A commit ends its hold at once, and keeps no key.
        let may_keep = share == Share::Exclusive && form != Form::Leads && !offers.settles;
        let min_hold = (may_keep && r.u32(..6) == 0).then(|| ttl.mul_f64(r.f64()).max(ms(1)));
        let once_per = (may_keep && order.len() == 1 && *period > 0 && r.u32(..3) == 0)
            .then(|| Period { length: *period, rerun: r.bool() });
        // A lease ends by itself, and nobody looks for who has left it.
        let unpolled = if offers.lives == Lives::Alone { 20_000 } else { [20_000, 60_000][r.usize(..2)] };
        let is_fair = offers.is_fair() && form != Form::Leads && r.u32(..3) == 0;
        PlannedCall {
            process,
            caller,
            pause: Duration::ZERO,
            share,
            wait: ms([0, 50, 2000, 5000, 20_000][r.usize(..5)]),
            renewed: form == Form::Leads || r.u32(..6) > 0,
            cohort: form != Form::Leads && r.bool(),
            fair: is_fair,
            form,
            timeout: (r.u32(..5) == 0).then(|| ms(r.u64(1..4000))),
            steps,
            max_hold: (form != Form::Leads && r.u32(..8) == 0).then(|| ttl.mul_f64(1.0 + r.f64())),
            min_hold,
            once_per,
            reentrant: order.len() == 1 && form != Form::Leads && r.bool(),
            works: offers.settles && order.len() == 1 && form != Form::Leads && r.u32(..3) > 0,
            fails: r.u32(..8) == 0,
            fate: match r.u32(..12) {
                0..2 => Fate::Dropped(r.u32(1..12)),
                2 => Fate::Unpolled(r.u32(1..8), ms(r.u64(1..unpolled))),
                3 => Fate::UnpolledAndDropped(r.u32(1..8), ms(r.u64(1..unpolled))),
                4 => Fate::Panics,
                5 if !matches!(form, Form::Leads) => Fate::Handed(r.u32(1..8)),
                _ => Fate::Completes,
            },
            keys: order,
        }
    }

    fn step(&mut self, process: usize, caller: usize, nests: u32) -> Step {
        let usual = self.ttl.min(ms(3000));
        match self.r.u32(..10) {
            0..2 => Step::Computes(usual.mul_f64(self.r.f64() * 2.0)),
            2..4 if nests > 0 => Step::Nested(Box::new(self.call(process, caller, nests - 1))),
            4..7 => Step::Sleeps(ms(self.r.u64(1..20))),
            _ => Step::Sleeps(usual.mul_f64(self.r.f64() * 2.5)),
        }
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
