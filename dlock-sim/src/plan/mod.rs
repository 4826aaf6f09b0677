//! The plan of one history: what the callers do, and what goes wrong. All of it is drawn from one seed, and may be made smaller.

mod draw;
mod lie;

use std::time::Duration;

pub use self::lie::{LIES, Lie};
use crate::history::{Period, Share};

/// The length of a history before all becomes calm.
pub(crate) const LENGTH: Duration = Duration::from_secs(60);

/// The work of the callers, and the faults.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Requests and schedules are drawn from it too.
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    pub(crate) offers: Offers,
    /// Whether a server that has started again grants no locks until old leases have ended.
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
    pub(crate) lives: Lives,
    /// A release that asks for the next caller of its process; only beside a queue.
    pub(crate) exchange: bool,
    /// Tokens for callers to which a hold is passed on.
    pub(crate) tokens: bool,
    /// Several locks in one step.
    pub(crate) batch: bool,
    /// Whether a hold is a transaction, in which its body may work.
    pub(crate) settles: bool,
    /// Whether its requests run on the thread `dlock`.
    pub(crate) own_thread: bool,
}

/// How long a hold lives that is not renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lives {
    /// Until its lease ends.
    #[default]
    Alone,
    /// As long as the session of its process.
    InSharedSession,
    /// As long as a session of its own.
    InOwnSession,
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
    /// An operator ends the sessions of a process.
    EndsSessions { process: usize, at: Duration },
    /// A process hears that its sessions may have ended, and they have not.
    Hints { process: usize, at: Duration },
    /// Another server takes over, and lacks what the store did in this last time.
    FailsOver { at: Duration, time: Duration, lacks: Duration },
    /// The store's clock jumps by this time.
    ClockJumps { at: Duration, by: Duration, forward: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedCall {
    pub(crate) process: usize,
    /// Calls of one caller follow each other.
    pub(crate) caller: usize,
    /// Before it begins.
    pub(crate) pause: Duration,
    /// In the order in which they are written.
    pub(crate) keys: Vec<u32>,
    pub(crate) share: Share,
    pub(crate) wait: Duration,
    pub(crate) renewed: bool,
    /// Whether its hold may be passed on; only where the store has tokens for that.
    pub(crate) cohort: bool,
    /// Whether it is served in its order.
    pub(crate) fair: bool,
    pub(crate) form: Form,
    pub(crate) timeout: Option<Duration>,
    pub(crate) steps: Vec<Step>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    /// At most once in each period, or again until it has come to its end.
    pub(crate) once_per: Option<Period>,
    /// Whether it joins the hold of an enclosing call.
    pub(crate) reentrant: bool,
    /// Whether its body works inside of its hold, which is a transaction.
    pub(crate) works: bool,
    /// Whether its body gives an error.
    pub(crate) fails: bool,
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
    /// A leadership that is resigned.
    Leads,
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
    /// It is dropped after this many polls.
    Dropped(u32),
    /// After this many polls it is not polled for this time.
    Unpolled(u32, Duration),
    /// Like `Unpolled`, and then it is dropped.
    UnpolledAndDropped(u32, Duration),
    /// After this many polls another task polls it to its end.
    Handed(u32),
    /// Its body panics at its end.
    Panics,
}

impl Plan {
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

    /// The command that runs its seed.
    #[must_use]
    pub fn command(&self) -> String {
        let mutant = if self.mutant.is_empty() { String::new() } else { format!(" --mutant {:?}", self.mutant) };
        let lie = if self.lie == Lie::Honest { String::new() } else { format!(" --lie {:?}", self.lie) };
        format!("cargo xtask sim --seeds 1 --from {}{mutant}{lie}", self.seed)
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
            for change in [Change::Fate, Change::Steps, Change::Timeout, Change::Fails, Change::Keys, Change::Ends] {
                let mut plan = self.clone();
                let changed = &mut plan.calls[at];
                match change {
                    Change::Fate if call.fate != Fate::Completes => changed.fate = Fate::Completes,
                    Change::Steps if call.steps.len() > 1 => changed.steps.truncate(1),
                    Change::Timeout if call.timeout.is_some() => changed.timeout = None,
                    Change::Keys if call.keys.len() > 1 => changed.keys.truncate(1),
                    Change::Ends if call.min_hold.is_some() || call.once_per.is_some() => {
                        (changed.min_hold, changed.once_per) = (None, None);
                    }
                    Change::Fails if call.fails => changed.fails = false,
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
    Fails,
    Keys,
    Ends,
}

impl Offers {
    /// Whether it serves callers in their order. Where each hold has a connection, the callers of a process wait behind its hold.
    pub(crate) fn is_fair(&self) -> bool {
        self.waiting == Waiting::Queues && !self.own_thread
    }
}

impl Network {
    pub(crate) fn faults(&self) -> u32 {
        self.lost + self.answer_lost + self.late + self.twice + self.refused
    }
}

impl PlannedCall {
    /// The time limit of its body. A hold that is not renewed must be longer than it.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.timeout.filter(|_| self.renewed)
    }
}
