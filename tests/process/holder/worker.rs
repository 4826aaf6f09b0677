//! A process whose callers lock, work and unlock until all is calm, and write down what they see.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dlock::{Error, ErrorKind, Wait, distributed_lock};
use dlock_sim::{End, Failure, Granted, Terms, What};
use fastrand::Rng;
use tokio::task::JoinHandle;

use super::recipes::{Recipe, Recipes};
use super::var;
use crate::arena::now;
use crate::faults::weigh;
use crate::record::{Record, is_calm};
use crate::register::Register;

/// How many locks the workers contend for.
pub(crate) const KEYS: u32 = 3;

/// Callers of one process, which wait behind each other.
const CALLERS: u32 = 3;

/// How often a body acts, in parts of a ttl.
const ACTS: u32 = 40;

/// The grants by a store that forgets while an order is on its way are told from others by this time.
const MARGIN: Duration = Duration::from_millis(300);

/// The name in the store of the lock with this number.
pub(crate) fn key(number: u32) -> dlock::Key {
    dlock::Key::rendered(&format!("k:<{number}>"))
}

/// The orders of a worker at its start.
pub(crate) fn variables(folder: &Path, process: u32, ttl: Duration, seed: u64) -> [(&'static str, String); 4] {
    [
        ("FOLDER", folder.display().to_string()),
        ("PROCESS", process.to_string()),
        ("TTL", ttl.as_millis().to_string()),
        ("SEED", seed.to_string()),
    ]
}

/// The state that the callers of a process share.
#[derive(Clone)]
struct Worker {
    record: Arc<Record>,
    folder: PathBuf,
    process: u32,
    ttl: Duration,
    /// In the place of dlock's attribute.
    recipe: Option<Arc<Recipes>>,
}

pub(super) async fn work() {
    let (folder, process) = (PathBuf::from(var("FOLDER")), var("PROCESS").parse().unwrap());
    let ttl = Duration::from_millis(var("TTL").parse().unwrap());
    let record = Arc::new(Record::new(&folder, process));
    let watched = record.clone();
    thread::spawn(move || watched.watch());
    let recipe = match std::env::var("RECIPE") {
        Ok(name) => Some(Arc::new(Recipes::open(Recipe::named(&name), &var("LOCKS"), &var("NAMESPACE"), ttl).await)),
        Err(_) => {
            dlock::configure(|defaults| {
                defaults.namespace = var("NAMESPACE");
                defaults.ttl = ttl;
            })
            .unwrap();
            // The network may be in any state.
            while let Err(error) = super::connect_once().await {
                record.add(0, What::Note(format!("the store does not open: {error}")));
                tokio::time::sleep(ttl / 10).await;
            }
            None
        }
    };
    println!("working");
    tokio::spawn(weigh(record.clone(), process));
    let worker = Worker { record, folder, process, ttl, recipe };
    let mut random = Rng::with_seed(var("SEED").parse().unwrap());
    let callers: Vec<_> =
        (0..CALLERS).map(|number| tokio::spawn(worker.clone().calls(Rng::with_seed(random.u64(..)), number))).collect();
    for caller in callers {
        caller.await.unwrap();
    }
    if worker.recipe.is_none() {
        dlock::shutdown(Duration::from_secs(5)).await;
    }
}

impl Worker {
    /// Between two acts of a body.
    fn pause(&self) -> Duration {
        self.ttl / ACTS
    }

    async fn calls(self, mut random: Rng, number: u32) {
        // Most bodies are short, and some outlive a lease. A recipe is to go wrong soon.
        let (one_in, manners) = match self.recipe {
            Some(_) => (2, [Manner::Acts; 4]),
            None => (5, [Manner::Acts, Manner::Acts, Manner::Sleeps, Manner::Blocks]),
        };
        for count in 0.. {
            tokio::time::sleep(self.ttl.mul_f64(random.f64() / 50.0)).await;
            if is_calm(&self.folder) {
                return;
            }
            let id = self.process * 1_000_000 + number * 100_000 + count;
            let key = random.u32(..KEYS);
            let call = Call {
                worker: self.clone(),
                id,
                register: Register::open(&self.folder, key, self.process, self.record.clone()),
                length: self.ttl.mul_f64(if random.u8(..one_in) == 0 {
                    random.f64() * 3.0
                } else {
                    random.f64() / 20.0
                }),
                manner: manners[random.usize(..4)],
            };
            let waits = if random.u8(..4) == 0 { Duration::ZERO } else { self.ttl * 3 };
            // Some callers lose patience on the way.
            let patience = if random.u8(..8) == 0 { self.ttl.mul_f64(random.f64()) } else { Duration::MAX };
            call.make(key, waits, patience).await;
        }
    }
}

/// How a body passes the time between its read and its write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It wakes again and again.
    Acts,
    /// It wakes once, so only the loss itself can wake it earlier.
    Sleeps,
    /// It keeps the thread of all callers, so it hears of nothing.
    Blocks,
}

/// One call for a lock.
struct Call {
    worker: Worker,
    id: u32,
    register: Register,
    length: Duration,
    manner: Manner,
}

impl Call {
    async fn make(&self, key: u32, waits: Duration, patience: Duration) {
        let Worker { record, ttl, recipe, .. } = &self.worker;
        let nanos = |time: Duration| time.as_nanos() as u64;
        // A recipe drops no body.
        let cancels = recipe.is_none();
        let (waits_for, lease) = (nanos(waits), nanos(*ttl + MARGIN));
        let terms = Terms { cancels, ..Terms::plain(waits_for, lease) };
        record.add(self.id, What::Asks { keys: vec![key], terms });
        let called = async {
            match recipe {
                None => guarded(key, if waits.is_zero() { Wait::None } else { Wait::UpTo(waits) }, self).await,
                Some(recipe) => {
                    recipe.run(key, waits, async |believed| self.body(None, move || believed.remaining()).await).await
                }
            }
        };
        match tokio::time::timeout(patience, called).await {
            Ok(answer) => {
                if let Err(error) = &answer {
                    record.add(self.id, What::Note(error.to_string()));
                }
                record.add(self.id, What::Answers(answer.map_err(|error| failure(&error))));
            }
            Err(_) => record.add(self.id, What::GivenUp),
        }
    }

    /// A change of the resource, with a read at its begin and a write at its end.
    async fn body(&self, token: Option<u64>, remaining: impl Fn() -> Duration + Clone + Send + 'static) {
        let record = &self.worker.record;
        record.add(self.id, What::Begins { holds: vec![Granted { token, slot: None }] });
        let mut ended = Ended { call: self, how: End::Dropped, observer: None };
        // The lock was checked in this same poll. The simulation, where no process loses its core, proves that.
        act(record, self.id, &remaining);
        let read = match token {
            Some(token) => self.register.read(self.id, token).await,
            None => None,
        };
        let end = now().after(self.length);
        match self.manner {
            Manner::Acts => {
                while now() < end {
                    tokio::time::sleep(self.worker.pause().min(end.since(now()))).await;
                    act(record, self.id, &remaining);
                }
            }
            Manner::Sleeps => {
                let observer = observe(self.worker.clone(), self.id, remaining.clone());
                ended.observer = Some(tokio::spawn(observer));
                tokio::time::sleep(self.length).await;
            }
            Manner::Blocks => {
                let from = now().as_nanos();
                thread::sleep(self.length / 2);
                record.add_at(from, 0, What::Stands { until: now().as_nanos() });
            }
        }
        act(record, self.id, &remaining);
        if let (Some(token), Some(read)) = (token, read) {
            self.register.write(self.id, token, read).await;
            act(record, self.id, &remaining);
        }
        ended.how = End::Done;
    }
}

/// Notes what is believed of a body that sleeps. Near the end of a belief it does not ask, since the question alone could tell the
/// process of the loss.
async fn observe(worker: Worker, id: u32, remaining: impl Fn() -> Duration) {
    loop {
        let left = remaining();
        act(&worker.record, id, &|| left);
        if left.is_zero() {
            return;
        }
        let near = worker.ttl / 10;
        tokio::time::sleep(if left > near { worker.pause() } else { left + near * 2 }).await;
    }
}

fn act(record: &Record, id: u32, remaining: &impl Fn() -> Duration) {
    let at = now();
    let left = remaining();
    let until = at.after(left).as_nanos();
    // A process may lose its core between the check of the lock and this line.
    let what = if left.is_zero() { What::Believes { until } } else { What::Acts { until } };
    record.add_at(at.as_nanos(), id, what);
}

#[distributed_lock(key = "k:<key>", wait = wait, guard = held)]
async fn guarded(key: u32, wait: Wait, call: &Call) -> Result<(), Error> {
    let (token, held) = (held.fence()?.get(), held.clone());
    call.body(Some(token), move || held.remaining()).await;
    Ok(())
}

/// Notes the end of a body, also when it is dropped.
struct Ended<'a> {
    call: &'a Call,
    how: End,
    observer: Option<JoinHandle<()>>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.abort();
        }
        self.call.worker.record.add(self.call.id, What::Ends(self.how));
    }
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Busy => Failure::Busy,
        ErrorKind::WaitTimeout => Failure::WaitTimeout,
        ErrorKind::Outage => Failure::Outage,
        ErrorKind::Lost(_) => Failure::Lost,
        ErrorKind::ShutDown => Failure::ShutDown,
        _ => Failure::Other,
    }
}
