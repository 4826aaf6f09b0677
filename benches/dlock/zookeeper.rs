//! ZooKeeper: cycles of a lock that nobody else wants, and hand-overs of one that everybody wants, beside the plain recipe
//! on the same client library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dlock::backends::zookeeper::client::{Acls, Client, CreateMode};
use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::shared;
use tokio::runtime::{Handle, Runtime};

use crate::Failed;
use crate::contended::{Lock, ROUND, ROUNDS, Section, Work, contender, measure_at};
use crate::table::{Contender, Row, median, percentile};
use crate::used::Used;

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "bench-zookeeper")]
async fn locked(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

const RECIPE: &str = "plain recipe";
const ALONE: [&str; 4] = ["create and delete, raw", "the same, on another thread", RECIPE, "dlock"];
const TURNS: usize = 9;
const TURN: Duration = Duration::from_millis(500);

/// Each task has a lock of its own.
pub(crate) fn uncontended_row(tasks: usize) -> Result<Row, Failed> {
    let runtime = runtime()?;
    let plain = runtime.block_on(async {
        match Registry::global().connect("bench-zookeeper", &shared().zookeeper()?).await {
            // By the row before.
            Err(error) if *error.kind() == dlock::ErrorKind::AlreadyRegistered => {}
            connected => connected?,
        }
        Plain::connect(tasks).await
    })?;
    // As dlock has its sessions.
    let aside = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let elsewhere = (aside.handle().clone(), aside.block_on(Plain::connect(tasks))?);
    let mut rounds: Vec<Vec<[f64; 5]>> = vec![Vec::new(); ALONE.len()];
    // The first turns warm connections and code up, and are not counted.
    for turn in 0..=TURNS {
        let mut order = [0, 1, 2, 3];
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let measured = runtime.block_on(measure(at, tasks, &plain, &elsewhere))?;
            if turn > 0 {
                rounds[at].push(measured);
            }
        }
    }
    let floors = rounds[0].clone();
    let contenders = ALONE.iter().zip(rounds).map(|(name, rounds)| {
        // Round by round, so that a slow second of the disk hits all sides.
        let ratio = median(rounds.iter().zip(&floors).map(|(own, floor)| own[0] / floor[0]).collect());
        Contender::of_cycles(name, &rounds, ("throughput × floor", ratio))
    });
    let mut row = Row {
        name: format!("zookeeper-{tasks}"),
        about: format!(
            "Acquire and release on ZooKeeper, one node, {tasks} task(s) with a lock each; a cycle is two commits. The plain \
             recipe lists the children between them; dlock asks for the list together with the first commit, and has \
             its sessions on a thread of its own."
        ),
        contenders: contenders.collect(),
        aims: Vec::new(),
    };
    let ratio = row.figure("dlock", "throughput × floor");
    let aim = if tasks == 1 { 0.80 } else { 0.65 };
    row.aim(&format!("at least {aim} of create and delete"), ratio, ratio >= aim);
    Ok(row)
}

/// One lock that all want.
pub(crate) fn contended_row(tasks: usize) -> Result<Row, Failed> {
    let url = shared().zookeeper()?;
    let work = Work { lock: Lock::Dlock, processes: 1, tasks, section: Section::Long };
    let runtime = runtime()?;
    let plain = runtime.block_on(Plain::connect(1))?;
    let (mut ours, mut theirs, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        limits.push(runtime.block_on(plain.limit())?);
        if round % 2 == 0 {
            ours.push(measure_at(&url, work, ROUND)?);
            theirs.push(runtime.block_on(hand_overs(tasks, &plain))?);
        } else {
            theirs.push(runtime.block_on(hand_overs(tasks, &plain))?);
            ours.push(measure_at(&url, work, ROUND)?);
        }
    }
    // Round by round, so that a slow second of the disk hits both sides.
    let ratio = median(ours.iter().zip(&theirs).map(|(own, other)| own.hand_overs / other).collect());
    let mut dlock = contender("dlock", &ours);
    dlock.figures.extend([("hold and one commit alone, /s", median(limits)), ("throughput × recipe", ratio)]);
    let mut figures = dlock.figures.clone();
    figures.iter_mut().for_each(|(_, value)| *value = f64::NAN);
    if let Some(first) = figures.first_mut() {
        first.1 = median(theirs);
    }
    let mut row = Row {
        name: format!("zookeeper-contended-{tasks}"),
        about: format!(
            "One lock on ZooKeeper, one node, 1 process × {tasks} tasks, 1 ms hold. Beside it the plain recipe: a node for \
             each task in one session, the children listed, the node ahead watched."
        ),
        contenders: vec![dlock, Contender { name: RECIPE.to_owned(), figures }],
        aims: Vec::new(),
    };
    row.aim("at least 0.98 of the plain recipe", ratio, ratio >= 0.98);
    let least = row.figure("dlock", "least share of a task");
    row.aim("every task within 5 % of its share: least", least, least >= 0.95);
    Ok(row)
}

fn runtime() -> Result<Runtime, Failed> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Cycles per second, the median and 99th percentile of a cycle in µs, and what each costs the client.
async fn measure(
    contender: usize,
    tasks: usize,
    plain: &Arc<Plain>,
    elsewhere: &(Handle, Arc<Plain>),
) -> Result<[f64; 5], Failed> {
    let (start, before) = (Instant::now(), Used::now());
    let end = start + TURN;
    let running = (0..tasks).map(|task| {
        let (plain, (handle, aside)) = (plain.clone(), elsewhere.clone());
        tokio::spawn(async move {
            let mut times = Vec::new();
            loop {
                let begun = Instant::now();
                if begun >= end {
                    return Ok::<_, Failed>(times);
                }
                match contender {
                    0 => plain.leave(task, &plain.enter(task).await?).await?,
                    1 => {
                        let entering = aside.clone();
                        let node = handle.spawn(async move { entering.enter(task).await }).await??;
                        let leaving = aside.clone();
                        handle.spawn(async move { leaving.leave(task, &node).await }).await??;
                    }
                    2 => plain.leave(task, &plain.lock(task).await?).await?,
                    _ => locked(task).await?,
                }
                times.push(begun.elapsed().as_nanos() as u64);
            }
        })
    });
    let mut times = Vec::new();
    for task in running.collect::<Vec<_>>() {
        times.extend(task.await??);
    }
    let wall = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let micros = |share| percentile(&times, share) as f64 / 1000.0;
    let [processor, sleeps] = Used::since_per_cycle(&before, times.len());
    Ok([times.len() as f64 / wall, micros(0.5), micros(0.99), processor, sleeps])
}

/// Per second, by the plain recipe.
async fn hand_overs(tasks: usize, plain: &Arc<Plain>) -> Result<f64, Failed> {
    let last = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let end = start + ROUND;
    let running = (1..=tasks as u64).map(|id| {
        let (plain, last) = (plain.clone(), last.clone());
        tokio::spawn(async move {
            let mut seen = 0_u64;
            while Instant::now() < end {
                let node = plain.lock(0).await?;
                seen += u64::from(last.swap(id, Ordering::Relaxed) != id);
                // As dlock's contenders hold it: an async timer's 1 ms lasts about 2.
                std::thread::sleep(Duration::from_millis(1));
                plain.leave(0, &node).await?;
            }
            Ok::<_, Failed>(seen)
        })
    });
    let mut seen = 0;
    for task in running.collect::<Vec<_>>() {
        seen += task.await??;
    }
    Ok(seen as f64 / start.elapsed().as_secs_f64())
}

/// The recipe as ZooKeeper's page tells it: one session, a sequential node for each who wants the lock, and a watch on the
/// node ahead. It renews nothing and finds no lost answer.
struct Plain {
    client: Client,
}

impl Plain {
    async fn connect(locks: usize) -> Result<Arc<Self>, Failed> {
        let url = shared().zookeeper()?;
        let client = Client::connect(url.trim_start_matches("zk://")).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for lock in 0..locks {
            client.mkdir(&Self::path(lock), &options).await?;
        }
        Ok(Arc::new(Self { client }))
    }

    fn path(lock: usize) -> String {
        format!("/plain/{lock}")
    }

    /// Makes a node, and tells its name.
    async fn enter(&self, lock: usize) -> Result<String, Failed> {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let note = b"dlock h=host p=1 s=a note of the usual length t=1";
        let (_, sequence) = self.client.create(&format!("{}/n-", Self::path(lock)), note, &options).await?;
        Ok(format!("n-{sequence}"))
    }

    /// Makes a node, and waits until it is the first.
    async fn lock(&self, lock: usize) -> Result<String, Failed> {
        let (path, node) = (Self::path(lock), self.enter(lock).await?);
        loop {
            let mut nodes = self.client.list_children(&path).await?;
            nodes.sort_unstable();
            let place = nodes.iter().position(|name| *name == node).ok_or("the node is gone")?;
            let Some(ahead) = place.checked_sub(1) else { return Ok(node) };
            let (stat, watcher) = self.client.check_and_watch_stat(&format!("{path}/{}", nodes[ahead])).await?;
            if stat.is_some() {
                watcher.changed().await;
            }
        }
    }

    async fn leave(&self, lock: usize, node: &str) -> Result<(), Failed> {
        Ok(self.client.delete(&format!("{}/{node}", Self::path(lock)), None).await?)
    }

    /// How many hand-overs per second there would be if each took the hold and one commit, and nothing else.
    async fn limit(&self) -> Result<f64, Failed> {
        let (mut holds, mut commits) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let begun = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            holds.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            self.client.set_data(&Self::path(0), b"", None).await?;
            commits.push(begun.elapsed().as_secs_f64());
        }
        Ok(1.0 / (median(holds) + median(commits)))
    }
}
