//! A lock that nobody else wants: acquire, an empty body, release; each task has its own key.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::{self, Instance, Make};
use rslock::LockManager;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Failed;
use crate::floors::Floor;
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "bench")]
async fn locked(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "bench-redis8")]
async fn locked_on_redis8(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "bench-valkey")]
async fn locked_on_valkey(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

const CONTENDERS: [&str; 4] = ["set-evalsha", "own commands, raw", "dlock", "rslock"];
/// Many and short ones: a slow moment of the machine then hits all contenders of a round.
const ROUNDS: usize = 41;
const ROUND: Duration = Duration::from_millis(150);
/// With one task, a contender that takes less than this part of the time of another one that sends the same is not believed.
const LEAST: f64 = 0.75;
const TTL: Duration = Duration::from_secs(30);

pub(crate) fn row(make: Make, tasks: usize) -> Result<Row, Failed> {
    // The usual server releases by a script. A newer one has a command for it.
    let (backend, ending, about) = match make {
        Make::Redis => ("bench", "", "Redis"),
        Make::Redis8 => ("bench-redis8", "-redis8", "Redis 8, which has DELEX"),
        Make::Valkey => ("bench-valkey", "-valkey", "Valkey 9, which has DELIFEQ"),
    };
    let server = server_of(make)?;
    let url = server.url();
    let mut rounds: Vec<Vec<(f64, f64, f64)>> = vec![Vec::new(); CONTENDERS.len()];
    // One task and the server wake each other all the time: whether both are on one core then says more than all else.
    // On one core with the server a contender took a seventh of the time of one on two. The kernel chooses anew for each, so no
    // number of rounds makes that even.
    let placed = if tasks == 1 { Some(Placed::apart(server)?) } else { None };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(Placed { client, .. }) = placed {
        builder.on_thread_start(move || {
            // The kernel took the same call for the server a moment ago.
            let _ = sched_setaffinity(None, &client);
        });
    }
    let runtime = builder.worker_threads(2).enable_all().build()?;
    if let Some(Placed { client, .. }) = placed {
        let stands = runtime.block_on(async { tokio::spawn(async { sched_getaffinity(None) }).await })??;
        if stands != client {
            return Err("the kernel does not keep the client on its core".into());
        }
    }
    runtime.block_on(async {
        if let Err(error) = Registry::global().connect(backend, &url).await
            && *error.kind() != dlock::ErrorKind::AlreadyRegistered
        {
            return Err(error);
        }
        Ok(())
    })?;
    let floor = runtime.block_on(Floor::connect(&url))?;
    let rslock = LockManager::new(vec![&*url]);
    // The first turns warm connections and code up, and are not counted.
    for round in 0..=ROUNDS {
        let mut order: Vec<usize> = (0..CONTENDERS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let measured = runtime.block_on(measure(make, contender, tasks, &floor, &rslock))?;
            if round > 0 {
                rounds[contender].push(measured);
            }
        }
    }
    let cores = if placed.is_some() { ", client and server on a core each" } else { "" };
    let mut row = Row {
        name: format!("uncontended-{tasks}{ending}"),
        about: format!(
            "Acquire and release on {about}, {tasks} task(s) with a key each, one multiplexed connection{cores}."
        ),
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    // The ratio is taken round by round, so that a slow second of the machine hits both sides.
    let floors = rounds[0].clone();
    for (name, rounds) in CONTENDERS.iter().zip(rounds) {
        let ratio = |pick: fn(&(f64, f64, f64)) -> f64| {
            median(rounds.iter().zip(&floors).map(|(own, floor)| pick(own) / pick(floor)).collect())
        };
        let middle = |pick: fn(&(f64, f64, f64)) -> f64| median(rounds.iter().map(pick).collect());
        row.contenders.push(Contender {
            name: (*name).to_owned(),
            figures: vec![
                ("cycles/s", middle(|m| m.0)),
                ("p50 µs", middle(|m| m.1)),
                ("p99 µs", middle(|m| m.2)),
                ("throughput × floor", ratio(|m| m.0)),
                ("p50 × floor", ratio(|m| m.1)),
            ],
        });
    }
    if tasks == 1 {
        let p50 = row.figure("dlock", "p50 × floor");
        // The two floors send much the same, and dlock sends its own commands and does more besides: what says otherwise was
        // not measured in one place.
        let raw = row.figure("own commands, raw", "p50 × floor");
        if !(LEAST..=1.0 / LEAST).contains(&raw) || p50 < raw * LEAST {
            let text =
                format!("own commands at {raw:.2} × the floor and dlock at {p50:.2} were not measured in one place");
            return Err(text.into());
        }
        row.aim("p50 at most 1.08 × the classic floor", p50, p50 <= 1.08);
    } else {
        let throughput = row.figure("dlock", "throughput × floor");
        if matches!(make, Make::Redis) {
            row.aim("throughput at least 0.85 × the classic floor, fence included", throughput, throughput >= 0.85);
        } else {
            row.aim("throughput above the classic floor, fence included", throughput, throughput > 1.0);
        }
    }
    Ok(row)
}

/// The server of this make; one for all rows, since the registry keeps to its address.
fn server_of(make: Make) -> Result<&'static Instance, Failed> {
    static SERVERS: [OnceLock<Instance>; 3] = [const { OnceLock::new() }; 3];
    let kept = &SERVERS[make as usize];
    if kept.get().is_none() {
        let _ = kept.set(Instance::start(servers::Redis { make, ..servers::Redis::default() })?);
    }
    Ok(kept.get().ok_or("no server")?)
}

/// A core for the client and another one for the server, which goes where it likes again when this is dropped.
struct Placed {
    client: CpuSet,
    server: Pid,
    all: CpuSet,
}

impl Placed {
    fn apart(server: &Instance) -> Result<Self, Failed> {
        let all = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).map(|core| {
            let mut one = CpuSet::new();
            one.set(core);
            one
        });
        let (Some(client), Some(other)) = (cores.next(), cores.next()) else {
            return Err("one task and its server need a core each, and this process has one".into());
        };
        let server = server.pid().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).ok_or("no server")?;
        sched_setaffinity(Some(server), &other)?;
        Ok(Self { client, server, all })
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = sched_setaffinity(Some(self.server), &self.all);
    }
}

/// Cycles per second, and the median and 99th percentile of a cycle in µs.
async fn measure(
    make: Make,
    contender: usize,
    tasks: usize,
    floor: &Floor,
    rslock: &LockManager,
) -> Result<(f64, f64, f64), Failed> {
    let start = Instant::now();
    let end = start + ROUND;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (mut floor, rslock) = (floor.clone(), rslock.clone());
            tokio::spawn(async move {
                let (key, fence) = (format!("bench:{contender}:{task}"), "bench:fence");
                let mut times = Vec::new();
                loop {
                    let begun = Instant::now();
                    if begun >= end {
                        return Ok::<_, Failed>(times);
                    }
                    match contender {
                        0 => floor.classic(&key).await?,
                        1 => floor.own(&key, fence).await?,
                        2 => match make {
                            Make::Redis => locked(task).await?,
                            Make::Redis8 => locked_on_redis8(task).await?,
                            Make::Valkey => locked_on_valkey(task).await?,
                        },
                        // Its lock has no fence.
                        _ => rslock.unlock(&rslock.lock(&*key, TTL).await?).await,
                    }
                    times.push(begun.elapsed().as_nanos() as u64);
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await??);
    }
    let wall = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let micros = |share| percentile(&times, share) as f64 / 1000.0;
    Ok((times.len() as f64 / wall, micros(0.5), micros(0.99)))
}
