//! The nemesis: faults of the network, the processes, the server and its operator, one after another and at the same time.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use dlock::Registry;
use dlock_sim::{Event, What};
use dlock_testkit::Mode;
use dlock_testkit::child::Child;
use fastrand::Rng;

use super::sessions;
use crate::arena::{Arena, PATIENCE, now};
use crate::holder::recipes::Recipe;
use crate::holder::worker::{self, KEYS, key};
use crate::record::{self, Line, Record};

const PROCESSES: usize = 4;

/// No order of an operator takes longer.
const ORDER: Duration = Duration::from_secs(1);

/// A fault, without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Cut,
    Refuse,
    DelayRequests,
    DelayReplies,
    Blackhole,
    SwallowRequests,
    SwallowReplies,
    DropReplies,
    LateRequests,
    Kill,
    StopShort,
    StopLong,
    PauseServer,
    KillServer,
    RestartServer,
    Break,
    EndSessions,
}

const OF_PROCESSES: [Fault; 4] = [Fault::Kill, Fault::StopShort, Fault::StopLong, Fault::Break];

const OF_SERVERS: [Fault; 13] = [
    Fault::Cut,
    Fault::Refuse,
    Fault::DelayRequests,
    Fault::DelayReplies,
    Fault::Blackhole,
    Fault::SwallowRequests,
    Fault::SwallowReplies,
    Fault::DropReplies,
    Fault::LateRequests,
    Fault::PauseServer,
    Fault::KillServer,
    Fault::RestartServer,
    Fault::EndSessions,
];

/// What ends a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    Network,
    Wake(usize),
    ResumeServer,
    StartServer,
}

/// The workers of a run, with their records.
pub(crate) struct Workers<'a> {
    arena: &'a Arena,
    folder: &'a Path,
    ttl: Duration,
    recipe: Option<Recipe>,
    record: Record,
    all: Vec<Worker>,
    born: u32,
}

struct Worker {
    child: Child,
    process: u32,
    stopped: Option<u64>,
}

impl<'a> Workers<'a> {
    /// Starts so many, with dlock or with a recipe in its place.
    pub(crate) fn start(
        arena: &'a Arena,
        folder: &'a Path,
        count: usize,
        ttl: Duration,
        recipe: Option<Recipe>,
        random: &mut Rng,
    ) -> Self {
        let record = Record::new(folder, 0);
        let mut workers = Self { arena, folder, ttl, recipe, record, all: Vec::new(), born: 0 };
        for _ in 0..count {
            let worker = workers.bear(random);
            workers.all.push(worker);
        }
        for worker in &mut workers.all {
            worker.child.wait_line("working", PATIENCE).unwrap();
        }
        workers
    }

    fn bear(&mut self, random: &mut Rng) -> Worker {
        self.born += 1;
        let mut variables = worker::variables(self.folder, self.born, self.ttl, random.u64(..)).to_vec();
        variables.extend(self.recipe.map(|recipe| ("RECIPE", format!("{recipe:?}"))));
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Worker { child: self.arena.child_with("work", &variables), process: self.born, stopped: None }
    }

    pub(crate) fn kill(&mut self, victim: usize, random: &mut Rng) {
        let (at, process) = (now().as_nanos(), self.all[victim].process);
        self.all[victim].child.kill9().unwrap();
        self.record.line(&Line::Killed { at, process });
        self.all[victim] = self.bear(random);
    }

    pub(crate) fn stop(&mut self, victim: usize) {
        let worker = &mut self.all[victim];
        worker.stopped = Some(now().as_nanos());
        worker.child.stop().unwrap();
    }

    pub(crate) fn wake(&mut self, victim: usize) {
        let worker = &mut self.all[victim];
        worker.child.cont().unwrap();
        let (until, process) = (now().as_nanos(), worker.process);
        if let Some(at) = worker.stopped.take() {
            self.record.line(&Line::Saw(Event { at, process, call: 0, what: What::Stands { until } }));
        }
    }

    /// Lets all come to their end.
    pub(crate) fn end(mut self) {
        record::calm(self.folder);
        for worker in &mut self.all {
            let fails = match worker.child.wait(PATIENCE) {
                Ok(status) if status.success() => continue,
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let text = format!("process {}: {fails}", worker.process);
            self.record.line(&Line::Left { at: now().as_nanos(), text });
        }
    }
}

/// Runs workers among random faults for so long.
pub(super) fn run(arena: &Arena, folder: &Path, seed: u64, length: Duration) {
    let mut random = Rng::with_seed(seed);
    let ttl = arena.store.workers_ttl();
    let workers = Workers::start(arena, folder, PROCESSES, ttl, None, &mut random);
    let operator = arena.block_on(arena.near());
    let mut nemesis =
        Nemesis { arena, ttl, random, workers, operator, undo: Vec::new(), broken: Vec::new(), start: Instant::now() };
    while nemesis.start.elapsed() < length {
        nemesis.acts();
        let pause = ttl.mul_f64(nemesis.random.f64());
        nemesis.undo_until(Instant::now() + pause);
    }
    nemesis.ends();
}

struct Nemesis<'a> {
    arena: &'a Arena,
    ttl: Duration,
    random: Rng,
    workers: Workers<'a>,
    /// With connections that no fault of the network reaches.
    operator: Registry,
    undo: Vec<(Instant, Undo)>,
    /// The ids of the holds that the operator has ended. Their records stay for a minute.
    broken: Vec<String>,
    start: Instant,
}

impl Nemesis<'_> {
    /// Does one fault, unless the drawn one cannot be now.
    fn acts(&mut self) {
        let of_servers: &[Fault] = if self.arena.store.is_remote() { &OF_SERVERS } else { &[] };
        let faults = [&OF_PROCESSES[..], &OF_PROCESSES, of_servers].concat();
        let fault = faults[self.random.usize(..faults.len())];
        let victim = self.random.usize(..self.workers.all.len());
        let of_key = self.random.u32(..KEYS);
        let length = self.ttl.mul_f64(match fault {
            Fault::StopShort => 0.1 + self.random.f64() * 0.8,
            Fault::StopLong => 1.1 + self.random.f64(),
            Fault::DelayRequests | Fault::DelayReplies => 0.5 + self.random.f64(),
            _ => 0.1 + self.random.f64() * 1.4,
        });
        let delay = self.ttl.mul_f64(self.random.f64() * 0.6);
        let has = |undo: fn(&Undo) -> bool| self.undo.iter().any(|(_, one)| undo(one));
        let (network, server) =
            (has(|undo| *undo == Undo::Network), has(|undo| matches!(undo, Undo::ResumeServer | Undo::StartServer)));
        let can = match fault {
            Fault::Kill | Fault::StopShort | Fault::StopLong => {
                !self.undo.iter().any(|(_, one)| *one == Undo::Wake(victim))
            }
            Fault::Break | Fault::EndSessions | Fault::PauseServer | Fault::KillServer | Fault::RestartServer => {
                !server
            }
            Fault::Cut => true,
            _ => !network,
        };
        if !can {
            return;
        }
        self.tells(&match fault {
            Fault::Kill => format!("Kill: process {}", self.workers.all[victim].process),
            Fault::StopShort | Fault::StopLong => {
                format!("{fault:?}: process {} for {length:?}", self.workers.all[victim].process)
            }
            Fault::Break => format!("Break: key {of_key}"),
            Fault::Cut | Fault::EndSessions => format!("{fault:?}"),
            Fault::DelayRequests | Fault::DelayReplies => format!("{fault:?}: by {delay:?} for {length:?}"),
            _ => format!("{fault:?}: for {length:?}"),
        });
        match fault {
            Fault::Cut => self.arena.proxies.iter().for_each(dlock_testkit::Proxy::cut),
            Fault::Refuse => self.arena.set(Mode::Refuse),
            Fault::DelayRequests => self.arena.set(Mode::Delay { to_server: delay, to_client: Duration::ZERO }),
            Fault::DelayReplies => self.arena.set(Mode::Delay { to_server: Duration::ZERO, to_client: delay }),
            Fault::Blackhole => self.arena.set(Mode::BLACKHOLE),
            Fault::SwallowRequests => self.arena.set(Mode::Blackhole { to_server: true, to_client: false }),
            Fault::SwallowReplies => self.arena.set(Mode::Blackhole { to_server: false, to_client: true }),
            Fault::DropReplies => self.arena.set(Mode::DropReplies),
            Fault::LateRequests => self.arena.proxies.iter().for_each(dlock_testkit::Proxy::keep),
            Fault::Kill => self.workers.kill(victim, &mut self.random),
            Fault::StopShort | Fault::StopLong => self.workers.stop(victim),
            Fault::PauseServer => self.arena.servers.iter().for_each(|server| server.pause().unwrap()),
            Fault::KillServer => self.kills_server(),
            Fault::RestartServer => self.arena.servers.iter().for_each(|server| server.end().unwrap()),
            Fault::Break => self.breaks(of_key),
            Fault::EndSessions => self.forgetting(None, |nemesis| sessions::end(nemesis.arena)),
        }
        let undo = match fault {
            Fault::Cut | Fault::Kill | Fault::Break | Fault::EndSessions => return,
            Fault::StopShort | Fault::StopLong => Undo::Wake(victim),
            Fault::PauseServer => Undo::ResumeServer,
            Fault::KillServer | Fault::RestartServer => Undo::StartServer,
            _ => Undo::Network,
        };
        self.undo.push((Instant::now() + length, undo));
    }

    /// Ends the faults whose time has come.
    fn undo_until(&mut self, until: Instant) {
        self.undo.sort_by_key(|(due, _)| *due);
        while self.undo.first().is_some_and(|(due, _)| *due <= until) {
            let (due, undo) = self.undo.remove(0);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.undoes(undo);
        }
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn undoes(&mut self, undo: Undo) {
        self.tells(&format!("end of it: {undo:?}"));
        match undo {
            Undo::Network => {
                self.arena.proxies.iter().for_each(dlock_testkit::Proxy::deliver_all);
                self.arena.set(Mode::Pass);
            }
            Undo::Wake(victim) => self.workers.wake(victim),
            Undo::ResumeServer => self.arena.servers.iter().for_each(|server| server.resume().unwrap()),
            Undo::StartServer => self.arena.servers.iter().for_each(|server| server.restart().unwrap()),
        }
    }

    fn kills_server(&mut self) {
        let forgets = self.arena.store.forgets();
        let kill = |nemesis: &mut Self| nemesis.arena.servers.iter().for_each(|server| server.kill9().unwrap());
        if forgets { self.forgetting(None, kill) } else { kill(self) }
    }

    /// An operator ends the hold of a lock, whoever has it.
    fn breaks(&mut self, number: u32) {
        self.forgetting(Some(number), |nemesis| {
            let order = async {
                let state = nemesis.operator.lock(key(number)).holders().await?;
                if let Some(id) = state.holders.first().and_then(|holder| holder.id) {
                    nemesis.broken.push(id.to_string());
                    nemesis.operator.lock(key(number)).break_hold(id).await?;
                }
                Ok::<_, dlock::Error>(())
            };
            // An order that does not arrive breaks nothing.
            let _ = nemesis.arena.block_on(async { tokio::time::timeout(ORDER, order).await });
        });
    }

    /// The store may forget what it granted before the end of this.
    fn forgetting(&mut self, key: Option<u32>, order: impl FnOnce(&mut Self)) {
        self.workers.record.line(&Line::Forgets { at: now().as_nanos(), key });
        order(self);
        self.workers.record.line(&Line::Forgets { at: now().as_nanos(), key });
    }

    fn tells(&self, text: &str) {
        println!("{:>8.3} s  {text}", self.start.elapsed().as_secs_f64());
        self.workers.record.line(&Line::Fault { at: now().as_nanos(), text: text.to_owned() });
    }

    /// Ends all faults and all workers, and looks what the store has left when all leases must have ended.
    fn ends(mut self) {
        while let Some((_, undo)) = self.undo.pop() {
            self.undoes(undo);
        }
        self.tells("calm");
        let (arena, ttl, folder, broken) = (self.arena, self.ttl, self.workers.folder, self.broken);
        self.workers.end();
        let last = Instant::now() + ttl * 3 + arena.store.takeover_delay() + PATIENCE / 12;
        loop {
            let mut left = arena.block_on(arena.probe.places());
            left.retain(|place| !broken.iter().any(|id| place.contains(id)));
            if left.is_empty() {
                return;
            }
            if Instant::now() > last {
                let text = left.join("; ");
                return Record::new(folder, 0).line(&Line::Left { at: now().as_nanos(), text });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
