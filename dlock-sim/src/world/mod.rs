//! The world of one history: virtual time, what is due, the network, the store, and the events.

mod network;
mod sessions;
mod trouble;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::Clock;
use fastrand::Rng;

use self::sessions::SessionNews;
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
    /// Until when a process stands still.
    stands_until: BTreeMap<u32, u64>,
    /// How often a process, the server or the network has stood still.
    pub(crate) hindered: u64,
    /// The calls for several keys.
    pub(crate) several: BTreeSet<u32>,
    /// The processes that shut down.
    pub(crate) leaving: BTreeSet<u32>,
    /// The processes that have closed their sessions.
    closed: BTreeSet<u32>,
    session_news: BTreeMap<u64, SessionNews>,
    /// The holds, by key and token, inside of which bodies have worked.
    pub(crate) worked: BTreeSet<(u32, u64)>,
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
            stands_until: BTreeMap::new(),
            hindered: 0,
            several: BTreeSet::new(),
            leaving: BTreeSet::new(),
            closed: BTreeSet::new(),
            session_news: BTreeMap::new(),
            worked: BTreeSet::new(),
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

impl World {
    pub(crate) fn add(&mut self, process: u32, call: u32, what: What) {
        self.history.add(self.now, process, call, what);
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
            self.hindered += 1;
            for process in 1..=self.clocks.len() {
                self.add(process as u32, 0, What::Stands { until });
            }
            self.advance_to(until);
        }
    }

    /// A process stands still until then.
    pub(crate) fn stands(&mut self, process: u32, until: u64) {
        self.stands_until.insert(process, until);
        self.hindered += 1;
        self.add(process, 0, What::Stands { until });
    }

    /// The server ends, and starts again after a time.
    pub(crate) fn restart(&mut self, time: Duration, forgets: bool, guard: Option<Duration>) {
        if self.is_calm() {
            return;
        }
        self.store.down_until = self.now + nanos(time);
        self.hindered += 1;
        let to = self.store.highest_token;
        let ended = self.store.restart(forgets);
        self.add(0, 0, What::Restarts { time: nanos(time), forgets });
        match guard {
            // It cannot know what it has forgotten.
            Some(ttl) => self.store.guard_until = self.now + nanos(time + ttl),
            None if forgets => self.add(0, 0, What::Forgets { key: None, from: 0, to }),
            None => {}
        }
        for (process, session) in ended {
            self.end_session(process, session);
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
}
