//! The plan of one history: what the callers do, and what goes wrong. All of it is drawn from one seed, and may be made smaller.

use std::time::Duration;

use fastrand::Rng;

use crate::store::Lie;

/// The length of a history before all becomes calm.
pub(crate) const LENGTH: Duration = Duration::from_secs(60);

/// The work of the callers, and the faults.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Requests and schedules are drawn from it too.
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    pub(crate) offers: Offers,
    /// Whether a server that has forgotten its locks grants none until their leases have ended.
    pub(crate) guarded: bool,
    /// By how many millionths each process's clock is fast.
    pub(crate) drifts: Vec<i64>,
    pub(crate) network: Network,
    pub(crate) calls: Vec<PlannedCall>,
    pub(crate) trouble: Vec<Trouble>,
    /// A planted fault of the engine.
    pub(crate) mutant: &'static str,
    /// A planted fault of the store.
    pub(crate) lie: Lie,
}

/// The powers of the store beyond plain leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offers {
    pub(crate) waiting: Waiting,
    /// A release that asks for the next caller of its process; only beside a queue.
    pub(crate) exchange: bool,
    /// Tokens for callers to which a hold is passed on.
    pub(crate) tokens: bool,
}

/// How a waiter gets the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It asks now and then.
    Polls,
    /// It hears of a release.
    Hears,
    /// The store has a queue, and hands the lock over.
    Queues,
}

/// How many of a thousand requests meet each fate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Network {
    /// The usual way takes up to this.
    pub(crate) latency: Duration,
    pub(crate) lost: u32,
    pub(crate) answer_lost: u32,
    pub(crate) late: u32,
    pub(crate) twice: u32,
    pub(crate) refused: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// A process, or its machine, stands still.
    Stands { process: usize, at: Duration, time: Duration },
    /// The server is down.
    Restart { at: Duration, time: Duration, forgets: bool },
    /// Requests of a process do not arrive, or their answers do not, or both.
    Cut { process: usize, at: Duration, time: Duration, requests: bool, answers: bool },
    /// A process shuts down.
    ShutsDown { process: usize, at: Duration, within: Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedCall {
    pub(crate) process: usize,
    /// Calls of one caller follow each other.
    pub(crate) caller: usize,
    /// Before it begins.
    pub(crate) pause: Duration,
    pub(crate) key: u32,
    pub(crate) wait: Duration,
    pub(crate) renewed: bool,
    /// Whether its hold may be passed on; only where the store has tokens for that.
    pub(crate) cohort: bool,
    pub(crate) form: Form,
    pub(crate) timeout: Option<Duration>,
    pub(crate) steps: Vec<Step>,
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `Lock::run`.
    Run,
    /// The same with `on_lost = continue`.
    RunOn,
    /// A guard that is released.
    Guard,
    /// A guard that is dropped.
    DroppedGuard,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Sleeps(Duration),
    /// Works without an await.
    Computes(Duration),
    /// Another call inside of the body.
    Nested(Box<PlannedCall>),
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Completes,
    /// It is dropped after so many polls.
    Dropped(u32),
    /// It is not polled for a while after so many polls.
    Unpolled(u32, Duration),
    /// The same, and then it is dropped.
    UnpolledAndDropped(u32, Duration),
    /// Its body panics at its end.
    Panics,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5eed);
        let r = &mut random;
        let processes = r.usize(1..=3);
        let keys = r.u32(1..=2);
        let ttl = ms([300, 1000, 1000, 3000, 60_000][r.usize(..5)]);
        let drifts = (0..processes).map(|_| if r.bool() { r.i64(-4000..=4000) } else { 0 }).collect();
        let network = Network::draw(r);
        let callers: Vec<_> = (0..processes).map(|_| r.usize(1..=3)).collect();
        let count = r.usize(6..=24);
        let mut calls: Vec<_> = (0..count)
            .map(|_| {
                let process = r.usize(..processes);
                let caller = r.usize(..callers[process]);
                PlannedCall::draw(r, process, caller, keys, ttl, 1)
            })
            .collect();
        // All begin early in some histories, so that they meet.
        let longest = [500, 2000, 10_000][r.usize(..3)];
        calls.iter_mut().for_each(|call| call.pause = ms(r.u64(0..longest)));
        let trouble = (0..r.usize(0..=3)).map(|_| Trouble::draw(r, processes, ttl)).collect();
        let waiting = [Waiting::Polls, Waiting::Hears, Waiting::Queues, Waiting::Queues][r.usize(..4)];
        let offers = Offers { waiting, exchange: r.bool(), tokens: r.bool() };
        Self { seed, ttl, offers, guarded: r.bool(), drifts, network, calls, trouble, mutant: "", lie: Lie::Honest }
    }

    /// The same with a planted fault of the engine.
    #[must_use]
    pub fn mutated(self, mutant: &'static str) -> Self {
        Self { mutant, ..self }
    }

    /// The same on a store that lies.
    #[must_use]
    pub fn lied_to(self, lie: Lie) -> Self {
        Self { lie, ..self }
    }

    /// Smaller plans, the smallest first. One of them may break the same promise.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        for half in [self.calls.len() / 2, self.calls.len() / 4] {
            if half > 1 {
                smaller.push(Self { calls: self.calls[half..].to_vec(), ..self.clone() });
                smaller.push(Self { calls: self.calls[..self.calls.len() - half].to_vec(), ..self.clone() });
            }
        }
        if self.network.faults() > 0 {
            let network = Network { latency: self.network.latency, ..Network::default() };
            smaller.push(Self { network, ..self.clone() });
        }
        for at in 0..self.trouble.len() {
            let mut plan = self.clone();
            plan.trouble.remove(at);
            smaller.push(plan);
        }
        for at in 0..self.calls.len() {
            let mut plan = self.clone();
            plan.calls.remove(at);
            smaller.push(plan);
        }
        for at in 0..self.calls.len() {
            let call = &self.calls[at];
            for change in [Change::Fate, Change::Steps, Change::Timeout] {
                let mut plan = self.clone();
                let changed = &mut plan.calls[at];
                match change {
                    Change::Fate if call.fate != Fate::Completes => changed.fate = Fate::Completes,
                    Change::Steps if call.steps.len() > 1 => changed.steps.truncate(1),
                    Change::Timeout if call.timeout.is_some() => changed.timeout = None,
                    _ => continue,
                }
                smaller.push(plan);
            }
        }
        smaller
    }
}

enum Change {
    Fate,
    Steps,
    Timeout,
}

impl Network {
    fn draw(r: &mut Rng) -> Self {
        let latency = ms([2, 2, 20, 120][r.usize(..4)]);
        // In some histories nearly nothing goes as it should.
        let storm = if r.u32(..4) == 0 { 4 } else { 1 };
        let mut often = |most: u32| if r.bool() { r.u32(0..=most * storm) } else { 0 };
        Self { latency, lost: often(60), answer_lost: often(60), late: often(60), twice: often(60), refused: often(40) }
    }

    fn faults(&self) -> u32 {
        self.lost + self.answer_lost + self.late + self.twice + self.refused
    }
}

impl Trouble {
    fn draw(r: &mut Rng, processes: usize, ttl: Duration) -> Self {
        let at = ms(r.u64(0..15_000));
        let time = ttl.min(ms(4000)).mul_f64(r.f64() * 3.0);
        match r.u32(..11) {
            8.. => {
                let (process, way) = (r.usize(..processes), r.u32(..3));
                Self::Cut { process, at, time: ms(r.u64(1..8000)), requests: way != 0, answers: way != 1 }
            }
            0..4 => Self::Stands { process: r.usize(..processes), at, time },
            4..6 => Self::Restart { at, time: ms(r.u64(1..3000)), forgets: r.bool() },
            6 => Self::Restart { at, time: ms(r.u64(3000..15_000)), forgets: false },
            _ => Self::ShutsDown { process: r.usize(..processes), at, within: ms(r.u64(0..3000)) },
        }
    }
}

impl PlannedCall {
    /// The time limit of its body. A hold that is not renewed must be longer than it.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.timeout.filter(|_| self.renewed)
    }

    fn draw(r: &mut Rng, process: usize, caller: usize, keys: u32, ttl: Duration, nests: u32) -> Self {
        let usual = ttl.min(ms(3000));
        let steps = (0..r.usize(0..=3)).map(|_| match r.u32(..10) {
            0..2 => Step::Computes(usual.mul_f64(r.f64() * 2.0)),
            2..4 if nests > 0 => Step::Nested(Box::new(Self::draw(r, process, caller, keys, ttl, nests - 1))),
            4..7 => Step::Sleeps(ms(r.u64(1..20))),
            _ => Step::Sleeps(usual.mul_f64(r.f64() * 2.5)),
        });
        let steps: Vec<_> = steps.collect();
        Self {
            process,
            caller,
            pause: Duration::ZERO,
            key: r.u32(..keys),
            wait: ms([0, 50, 2000, 5000, 20_000][r.usize(..5)]),
            renewed: r.u32(..6) > 0,
            cohort: r.bool(),
            form: [Form::Run, Form::Run, Form::RunOn, Form::Guard, Form::DroppedGuard][r.usize(..5)],
            timeout: (r.u32(..5) == 0).then(|| ms(r.u64(1..4000))),
            steps,
            fate: match r.u32(..12) {
                0..2 => Fate::Dropped(r.u32(1..12)),
                2 => Fate::Unpolled(r.u32(1..8), ms(r.u64(1..20_000))),
                3 => Fate::UnpolledAndDropped(r.u32(1..8), ms(r.u64(1..20_000))),
                4 => Fate::Panics,
                _ => Fate::Completes,
            },
        }
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
