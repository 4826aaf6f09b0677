//! The nemesis: faults of the network, the processes, the server and its operator, one after another and at the same time.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use dlock::Registry;
use dlock_testkit::servers::Instance;
use dlock_testkit::{Mode, Proxy};
use fastrand::Rng;

use super::sessions;
use super::workers::Workers;
use crate::arena::{Arena, PATIENCE, now};
use crate::holder::worker::{KEYS, key};
use crate::record::{Line, Record};

const PROCESSES: usize = 4;

/// No order of an operator takes longer.
const ORDER: Duration = Duration::from_secs(1);

/// A fault between a worker and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Cut,
    Refuse,
    DelayRequests,
    DelayReplies,
    Blackhole,
    SwallowRequests,
    SwallowReplies,
    DropReplies,
    LateRequests,
}

impl Network {
    /// Whether the server sees live connections end.
    fn resets(self) -> bool {
        matches!(self, Self::Cut | Self::Refuse | Self::DropReplies)
    }
}

const NETWORK: [Network; 9] = [
    Network::Cut,
    Network::Refuse,
    Network::DelayRequests,
    Network::DelayReplies,
    Network::Blackhole,
    Network::SwallowRequests,
    Network::SwallowReplies,
    Network::DropReplies,
    Network::LateRequests,
];

/// Another fault, without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    StopShort,
    StopLong,
    Break,
    /// Of one worker, or of all.
    Network {
        all: bool,
    },
    PauseServer,
    KillServer,
    RestartServer,
    EndSessions,
}

const OF_PROCESSES: [Fault; 4] = [Fault::Kill, Fault::StopShort, Fault::StopLong, Fault::Break];

/// The network fails most often, and each of its faults needs a chance to meet a hold.
const OF_SERVERS: [Fault; 9] = [
    Fault::Network { all: false },
    Fault::Network { all: false },
    Fault::Network { all: false },
    Fault::Network { all: false },
    Fault::Network { all: true },
    Fault::PauseServer,
    Fault::KillServer,
    Fault::RestartServer,
    Fault::EndSessions,
];

/// The end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    Network(usize, Network),
    Wake(usize),
    /// One server, or all of the store.
    ResumeServer(Option<usize>),
    StartServer(Option<usize>),
}

/// Runs workers among random faults for so long.
pub(super) fn run(arena: &Arena, folder: &Path, seed: u64, length: Duration) {
    let mut random = Rng::with_seed(seed);
    let ttl = arena.store.workers_ttl();
    let workers = Workers::start(arena, folder, PROCESSES, ttl, None, &mut random);
    let operator = arena.block_on(arena.near());
    let (undo, broken, start) = (Vec::new(), Vec::new(), Instant::now());
    let mut nemesis = Nemesis { arena, ttl, random, workers, operator, undo, broken, start, length };
    thread::sleep(calm_of(length));
    while nemesis.start.elapsed() < length {
        nemesis.acts();
        let pause = ttl.mul_f64(nemesis.random.f64());
        nemesis.undo_until(Instant::now() + pause);
    }
    nemesis.ends();
}

/// How long nothing fails at the start and at the end of a run, to see what the workers weigh.
fn calm_of(length: Duration) -> Duration {
    (length / 10).min(Duration::from_secs(10))
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
    length: Duration,
}

impl Nemesis<'_> {
    /// Does one fault, unless the drawn one cannot be now.
    fn acts(&mut self) {
        let of_servers: &[Fault] = if self.arena.store.is_remote() { &OF_SERVERS } else { &[] };
        let faults = [&OF_PROCESSES[..], of_servers].concat();
        let fault = faults[self.random.usize(..faults.len())];
        // The first worker is never killed, so that what grows in it shows.
        let alive = usize::from(fault == Fault::Kill);
        let victim = self.random.usize(alive..self.workers.count());
        let of_key = self.random.u32(..KEYS);
        let length = self.ttl.mul_f64(match fault {
            Fault::StopShort => 0.1 + self.random.f64() * 0.8,
            Fault::StopLong => 1.1 + self.random.f64(),
            _ => 0.1 + self.random.f64() * 1.4,
        });
        let has = |one: fn(&Undo) -> bool| self.undo.iter().any(|(_, undo)| one(undo));
        let server = has(|undo| matches!(undo, Undo::ResumeServer(_) | Undo::StartServer(_)));
        let can = match fault {
            Fault::Kill | Fault::StopShort | Fault::StopLong => {
                !self.undo.iter().any(|(_, undo)| *undo == Undo::Wake(victim))
            }
            Fault::Network { .. } => true,
            _ => !server,
        };
        if !can {
            return;
        }
        let process = self.workers.process(victim);
        let which = one_or_all(&mut self.random, self.arena.servers.len());
        match fault {
            Fault::Network { .. } => {}
            Fault::Kill => self.tells(&format!("Kill: process {process}")),
            Fault::StopShort | Fault::StopLong => self.tells(&format!("{fault:?}: process {process} for {length:?}")),
            Fault::Break => self.tells(&format!("Break: key {of_key}")),
            Fault::EndSessions => self.tells("EndSessions"),
            _ => self.tells(&format!("{fault:?}: {} for {length:?}", name_of(which))),
        }
        let undo = match fault {
            Fault::Network { all } => {
                let places = if all { 0..self.workers.count() } else { victim..victim + 1 };
                for place in places {
                    let fault = NETWORK[self.random.usize(..NETWORK.len())];
                    self.cuts_off(place, fault);
                }
                return;
            }
            Fault::Kill => return self.workers.kill(victim, &mut self.random),
            Fault::Break => return self.breaks(of_key),
            Fault::EndSessions => {
                let order = |nemesis: &mut Self| sessions::end(nemesis.arena);
                return self.forgetting_if(self.arena.store.ends_with_sessions(), order);
            }
            Fault::StopShort | Fault::StopLong => {
                self.workers.stop(victim);
                Undo::Wake(victim)
            }
            Fault::PauseServer => {
                self.servers(which).iter().for_each(|server| server.pause().unwrap());
                Undo::ResumeServer(which)
            }
            Fault::KillServer => {
                let kill =
                    |nemesis: &mut Self| nemesis.servers(which).iter().for_each(|server| server.kill9().unwrap());
                self.forgetting_if(self.arena.store.forgets(), kill);
                Undo::StartServer(which)
            }
            Fault::RestartServer => {
                let end = |nemesis: &mut Self| nemesis.servers(which).iter().for_each(|server| server.end().unwrap());
                self.forgetting_if(self.arena.store.is_session(), end);
                Undo::StartServer(which)
            }
        };
        self.undo.push((Instant::now() + length, undo));
    }

    /// A fault of the network between one worker and the store, unless there is one.
    fn cuts_off(&mut self, place: usize, fault: Network) {
        let length = self.ttl.mul_f64(0.3 + self.random.f64() * 1.7);
        let delay = self.ttl.mul_f64(0.1 + self.random.f64() * 0.8);
        if self.undo.iter().any(|(_, undo)| matches!(undo, Undo::Network(of, _) if *of == place)) {
            return;
        }
        let process = self.workers.process(place);
        let by = match fault {
            Network::DelayRequests | Network::DelayReplies => format!(" by {delay:?}"),
            _ => String::new(),
        };
        self.tells(&format!("{fault:?}: process {process}{by} for {length:?}"));
        let which = one_or_all(&mut self.random, self.workers.proxies(place).len());
        let end = |nemesis: &mut Self| nemesis.sets(place, which, fault, delay);
        if fault.resets() && self.arena.store.is_session() {
            self.forgetting(None, Some(process), end);
        } else {
            end(self);
        }
        if fault == Network::Cut {
            return;
        }
        self.undo.push((Instant::now() + length, Undo::Network(place, fault)));
    }

    fn sets(&self, place: usize, which: Option<usize>, fault: Network, delay: Duration) {
        let proxies = &self.workers.proxies(place);
        let proxies = which.map_or(*proxies, |one| &proxies[one..=one]);
        let set = |mode| proxies.iter().for_each(|proxy| proxy.set(mode));
        match fault {
            Network::Cut => proxies.iter().for_each(Proxy::cut),
            Network::LateRequests => proxies.iter().for_each(Proxy::keep),
            Network::Refuse => set(Mode::Refuse),
            Network::DelayRequests => set(Mode::Delay { to_server: delay, to_client: Duration::ZERO }),
            Network::DelayReplies => set(Mode::Delay { to_server: Duration::ZERO, to_client: delay }),
            Network::Blackhole => set(Mode::BLACKHOLE),
            Network::SwallowRequests => set(Mode::Blackhole { to_server: true, to_client: false }),
            Network::SwallowReplies => set(Mode::Blackhole { to_server: false, to_client: true }),
            Network::DropReplies => set(Mode::DropReplies),
        }
    }

    fn servers(&self, which: Option<usize>) -> &[Instance] {
        let servers = &self.arena.servers;
        which.map_or(servers, |one| &servers[one..=one])
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
        let of = match undo {
            Undo::Network(place, fault) => format!("{fault:?}, process {}", self.workers.process(place)),
            Undo::Wake(place) => format!("stop, process {}", self.workers.process(place)),
            Undo::ResumeServer(which) => format!("PauseServer: {}", name_of(which)),
            Undo::StartServer(which) => format!("{} down", name_of(which)),
        };
        self.tells_end(&format!("end of: {of}"));
        match undo {
            Undo::Network(place, fault) => {
                for proxy in self.workers.proxies(place) {
                    proxy.deliver_all();
                    proxy.set(Mode::Pass);
                }
                // A hold that was granted late and cannot be renewed shows from when it counts.
                let was_late = matches!(fault, Network::DelayRequests | Network::DelayReplies);
                if was_late && self.random.u8(..4) > 0 && self.start.elapsed() < self.length {
                    self.cuts_off(place, Network::Blackhole);
                }
            }
            Undo::Wake(victim) => self.workers.wake(victim),
            Undo::ResumeServer(which) => self.servers(which).iter().for_each(|server| server.resume().unwrap()),
            Undo::StartServer(which) => self.servers(which).iter().for_each(|server| server.restart().unwrap()),
        }
    }

    /// An operator ends the hold of a lock, whoever has it.
    fn breaks(&mut self, number: u32) {
        self.forgetting(Some(number), None, |nemesis| {
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

    /// The store may forget what it granted before the end of this, to all or to one process.
    fn forgetting(&mut self, key: Option<u32>, process: Option<u32>, order: impl FnOnce(&mut Self)) {
        self.workers.record.line(&Line::Forgets { at: now().as_nanos(), key, process });
        order(self);
        self.workers.record.line(&Line::Forgets { at: now().as_nanos(), key, process });
    }

    fn forgetting_if(&mut self, forgets: bool, order: impl FnOnce(&mut Self)) {
        if forgets { self.forgetting(None, None, order) } else { order(self) }
    }

    fn tells_end(&self, text: &str) {
        println!("{:>8.3} s  {text}", self.start.elapsed().as_secs_f64());
        self.workers.record.line(&Line::Over { at: now().as_nanos(), text: text.to_owned() });
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
        self.tells_end("calm");
        thread::sleep(calm_of(self.length));
        let Self { arena, workers, broken, .. } = self;
        let folder = workers.folder;
        workers.end();
        // Redis keeps the line of those who waited for half a minute.
        let last = Instant::now() + PATIENCE;
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

/// Of several servers one is hit in most cases, so that a majority is left.
fn one_or_all(random: &mut Rng, servers: usize) -> Option<usize> {
    if servers < 2 || random.u8(..4) == 0 { None } else { Some(random.usize(..servers)) }
}

fn name_of(which: Option<usize>) -> String {
    which.map_or("all servers".to_owned(), |one| format!("server {one}"))
}
