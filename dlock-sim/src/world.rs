//! The world of one history: virtual time, what is due, the network, the store, and the events.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, Clock, Error, Result};
use fastrand::Rng;
use tokio::sync::oneshot;

use crate::history::{History, What};
use crate::plan::Network;
use crate::store::{Store, nanos};

/// The clock of a process, as the world sees it.
#[derive(Clone)]
pub(crate) struct ProcessClock {
    pub(crate) clock: Clock,
    start: u64,
    drift: i64,
}

impl ProcessClock {
    pub(crate) fn new(drift: i64) -> Self {
        let clock = Clock::manual();
        Self { start: clock.now().as_nanos(), clock, drift }
    }

    /// The process's time at an instant of the world.
    fn local(&self, world: u64) -> u64 {
        let drifted = i128::from(world) * i128::from(1_000_000 + self.drift) / 1_000_000;
        self.start.saturating_add(u64::try_from(drifted).unwrap_or(u64::MAX))
    }

    /// The first instant of the world at which the process's clock has come this far.
    pub(crate) fn world(&self, local: BootInstant) -> u64 {
        let passed = i128::from(local.as_nanos().saturating_sub(self.start));
        let mut world = u64::try_from(passed * 1_000_000 / i128::from(1_000_000 + self.drift)).unwrap_or(u64::MAX);
        while self.local(world) < local.as_nanos() {
            world += 1;
        }
        world
    }

    fn advance_to(&self, world: u64) {
        let by = self.local(world).saturating_sub(self.clock.now().as_nanos());
        self.clock.advance(Duration::from_nanos(by));
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.clock.next_sleep().map(|next| self.world(next))
    }
}

type Work = Box<dyn FnOnce(&mut World) + Send>;

struct Due {
    at: u64,
    number: u64,
    process: u32,
    work: Work,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) random: Rng,
    pub(crate) history: History,
    pub(crate) store: Store,
    pub(crate) network: Network,
    /// The parts of the network that are cut: the process, the time, and whether its requests and its answers are lost.
    pub(crate) cuts: Vec<(u32, std::ops::Range<u64>, bool, bool)>,
    /// The keys whose queues are served when a lease ends.
    looks: BTreeSet<u32>,
    /// By process, the first one is number 1.
    pub(crate) clocks: Vec<ProcessClock>,
    /// Whether requests are noted in the history.
    pub(crate) notes: bool,
    due: BinaryHeap<Reverse<Due>>,
    last_due: u64,
    pub(crate) sent: u64,
    pub(crate) last_call: u32,
}

/// The world, as the parts of a history share it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new(seed: u64, network: Network, store: Store, clocks: Vec<ProcessClock>, notes: bool) -> Self {
        let random = Rng::with_seed(seed ^ 0x3013);
        Self(Arc::new(Mutex::new(World {
            now: 0,
            random,
            history: History::default(),
            store,
            network,
            cuts: Vec::new(),
            looks: BTreeSet::new(),
            clocks,
            notes,
            due: BinaryHeap::new(),
            last_due: 0,
            sent: 0,
            last_call: 0,
        })))
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self, process: u32, call: u32, what: What) {
        self.with(|world| world.add(process, call, what));
    }
}

/// The fate of one request.
enum Fate {
    Arrives,
    Twice,
    Late,
    Lost,
    AnswerLost,
    Refused,
}

impl World {
    pub(crate) fn add(&mut self, process: u32, call: u32, what: What) {
        self.history.add(self.now, process, call, what);
    }

    fn note(&mut self, process: u32, text: impl FnOnce() -> String) {
        if self.notes {
            self.add(process, 0, What::Note(text()));
        }
    }

    /// Does `work` later. It concerns this process; 0 for none.
    pub(crate) fn later(&mut self, after: u64, process: u32, work: impl FnOnce(&mut Self) + Send + 'static) {
        self.last_due += 1;
        let at = self.now.saturating_add(after);
        self.due.push(Reverse(Due { at, number: self.last_due, process, work: Box::new(work) }));
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|due| due.0.at)
    }

    /// Does what is due, and gives the processes that it concerns.
    pub(crate) fn do_due(&mut self, mut concerns: impl FnMut(u32)) {
        while self.next_due().is_some_and(|at| at <= self.now) {
            let Some(Reverse(due)) = self.due.pop() else { return };
            (due.work)(self);
            concerns(due.process);
        }
    }

    pub(crate) fn advance_to(&mut self, instant: u64) {
        self.now = self.now.max(instant);
        self.clocks.iter().for_each(|clock| clock.advance_to(self.now));
    }

    /// Everything else stands still while a process computes, but no longer than until the network or a clock has something to do.
    pub(crate) fn compute(&mut self, process: u32, time: Duration) {
        let own = process as usize - 1;
        let others = self.clocks.iter().enumerate().filter(|(at, _)| *at != own).filter_map(|(_, clock)| clock.next());
        let until = others.chain(self.next_due()).fold(self.now.saturating_add(nanos(time)), u64::min);
        if until > self.now {
            for process in 1..=self.clocks.len() {
                self.add(process as u32, 0, What::Stands { until });
            }
            self.advance_to(until);
        }
    }

    /// The server ends, and starts again after a time.
    pub(crate) fn restart(&mut self, time: Duration, forgets: bool, guard: Option<Duration>) {
        if self.is_calm() {
            return;
        }
        self.store.down_until = self.now + nanos(time);
        self.store.restart(forgets);
        self.add(0, 0, What::Note(format!("the server is down for {time:?}")));
        match guard {
            Some(ttl) if forgets => self.store.guard_until = self.now + nanos(time + ttl),
            None if forgets => self.add(0, 0, What::Forgets { token: self.store.highest_token }),
            _ => {}
        }
    }

    fn latency(&mut self) -> u64 {
        let most = nanos(self.network.latency).max(1_000);
        // Most are quick, and a few take very long.
        match self.random.u32(..40) {
            0 if !self.is_calm() => self.random.u64(0..most * 30),
            _ => self.random.u64(most / 10..most),
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.network.latency == Duration::ZERO
    }

    /// From now on nothing goes wrong.
    pub(crate) fn calms_down(&mut self) {
        self.network = Network::default();
        self.store.down_until = self.now;
        self.add(0, 0, What::Calm);
    }

    /// Whether requests of a process are lost now, and whether answers to it are.
    fn is_cut(&self, process: u32) -> (bool, bool) {
        let cuts =
            self.cuts.iter().filter(|(of, time, ..)| *of == process && time.contains(&self.now) && !self.is_calm());
        cuts.fold((false, false), |(requests, answers), cut| (requests || cut.2, answers || cut.3))
    }

    fn fate(&mut self) -> Fate {
        let Network { lost, answer_lost, late, twice, refused, .. } = self.network;
        let mut number = self.random.u32(..1000);
        for (share, fate) in [
            (lost, Fate::Lost),
            (answer_lost, Fate::AnswerLost),
            (late, Fate::Late),
            (twice, Fate::Twice),
            (refused, Fate::Refused),
        ] {
            if number < share {
                return fate;
            }
            number -= share;
        }
        Fate::Arrives
    }

    /// A request leaves a process. `apply` does it in the store; it gets the number of the request.
    pub(crate) fn send<T: Send + 'static>(
        &mut self,
        process: u32,
        name: &'static str,
        mut apply: impl FnMut(&mut Self, u64) -> T + Send + Clone + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (sender, receiver) = oneshot::channel();
        self.sent += 1;
        let (number, fate, way, back) = (self.sent, self.fate(), self.latency(), self.latency());
        let breaks = self.random.bool();
        let answer_lost = matches!(fate, Fate::AnswerLost);
        let way = match fate {
            Fate::Late => way + self.random.u64(0..10_000_000_000),
            Fate::Twice => way + self.random.u64(0..1_000_000_000),
            _ => way,
        };
        let fate = if self.is_cut(process).0 { Fate::Lost } else { fate };
        self.note(process, || format!("sends {name} {number}"));
        match fate {
            Fate::Refused => {
                let refused = Err(Error::outage("the connection was refused").never_sent());
                self.later(way, process, move |_| drop(sender.send(refused)));
                return receiver;
            }
            Fate::Lost => {
                self.note(process, || format!("{name} {number} is lost"));
                self.breaks(way, process, sender, breaks);
                return receiver;
            }
            _ => {}
        }
        if matches!(fate, Fate::Twice) {
            // A client that had no answer has sent it again, and the answer is that to the second one.
            let (mut apply, before) = (apply.clone(), self.random.u64(0..way));
            self.later(before, 0, move |world| {
                if world.store.down_until <= world.now {
                    world.note(process, || format!("{name} {number} arrives, and is sent again"));
                    drop(apply(world, number));
                }
            });
        }
        self.later(way, 0, move |world| {
            if world.store.down_until > world.now {
                return world.breaks(back, process, sender, breaks);
            }
            world.note(process, || format!("{name} {number} arrives"));
            let answer = apply(world, number);
            if answer_lost || world.is_cut(process).1 {
                world.note(process, || format!("the answer to {name} {number} is lost"));
                return world.breaks(back, process, sender, breaks);
            }
            world.later(back, process, move |_| drop(sender.send(Ok(answer))));
        });
        receiver
    }

    /// No answer comes, or an error of the connection.
    fn breaks<T: Send + 'static>(&mut self, after: u64, process: u32, sender: oneshot::Sender<Result<T>>, tells: bool) {
        if tells {
            self.later(after, process, move |_| drop(sender.send(Err(Error::outage("the connection broke")))));
        }
    }

    /// Serves the queue of a key, now and when the lease of its holder ends.
    pub(crate) fn serve(&mut self, key: u32) {
        let (push, again) = self.store.serve(key, self.now);
        if let Some((process, news, pushed)) = push {
            let (fate, way) = (self.fate(), self.latency());
            self.note(process, || format!("the store grants {}", pushed.token));
            if matches!(fate, Fate::Lost | Fate::AnswerLost) || self.is_cut(process).1 {
                self.later(3_600_000_000_000, 0, move |_| drop(news));
            } else {
                self.later(way, process, move |_| {
                    let _ = news.send(pushed);
                });
            }
        }
        // One look ahead for each key is enough, since that one looks ahead again.
        if let Some(again) = again
            && self.looks.insert(key)
        {
            self.later(again.saturating_sub(self.now).max(1), 0, move |world| {
                world.looks.remove(&key);
                world.serve(key);
            });
        }
    }

    /// Tells waiters of a release. Some do not hear of it.
    pub(crate) fn tell(&mut self, listeners: Vec<oneshot::Sender<()>>) {
        for listener in listeners {
            let (fate, way) = (self.fate(), self.latency());
            if let Fate::Lost | Fate::AnswerLost = fate {
                // Kept, so that its other end hears nothing.
                self.later(3_600_000_000_000, 0, move |_| drop(listener));
                continue;
            }
            // Any process may listen.
            self.later(way, u32::MAX, move |_| {
                let _ = listener.send(());
            });
        }
    }
}
