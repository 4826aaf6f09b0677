//! 100,000 held locks: what keeping them costs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::{Key, Registry};
use dlock_testkit::servers::shared;
use redis::aio::MultiplexedConnection;

use crate::Failed;
use crate::table::{Contender, Row, percentile};

const HOLDS: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);

/// Long enough for each hold to be renewed three times.
const WATCHED: Duration = Duration::from_secs(30);

pub(crate) fn row() -> Result<Row, Failed> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(measure())
}

async fn measure() -> Result<Row, Failed> {
    let url = shared().redis()?;
    let registry = Registry::new();
    registry.connect("bench", &url).await?;
    let mut server = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    // The first hold opens the connections and starts the threads. They must not count as memory of the other holds.
    let first = lock(&registry, HOLDS).acquire().await?;
    let before = resident()?;
    let registry = Arc::new(registry);
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let registry = registry.clone();
            tokio::spawn(async move {
                let mut guards = Vec::with_capacity(HOLDS / 64 + 1);
                for number in (task..HOLDS).step_by(64) {
                    guards.push(lock(&registry, number).acquire().await?);
                }
                Ok::<_, dlock::Error>(guards)
            })
        })
        .collect();
    // Not put together: a second list of all guards would count as memory of dlock's.
    let mut guards = vec![vec![first]];
    for task in tasks {
        guards.push(task.await??);
    }
    let bytes = resident()?.saturating_sub(before) as f64 / HOLDS as f64;

    let (calls, busy, begun) = (calls(&mut server).await?, cpu()?, Instant::now());
    let mut ages = Vec::new();
    while begun.elapsed() < WATCHED {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut pipe = redis::pipe();
        for _ in 0..100 {
            pipe.cmd("PTTL").arg(format!("dl1:{{default:bench:held:<{}>}}", fastrand::usize(..HOLDS)));
        }
        let left: Vec<i64> = pipe.query_async(&mut server).await?;
        ages.extend(left.into_iter().map(|left| u64::try_from(TTL.as_millis() as i64 - left).unwrap_or(0)));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let core = (cpu()?.saturating_sub(busy)).as_secs_f64() / seconds;
    let requests = (self::calls(&mut server).await? - calls) as f64 / seconds;
    let held = guards.iter().flatten().filter(|guard| guard.check().is_ok()).count();
    ages.sort_unstable();
    let oldest = percentile(&ages, 0.999) as f64 / 1000.0;
    for guard in guards.into_iter().flatten() {
        drop(guard);
    }
    registry.shutdown(Duration::from_secs(60)).await;
    let mut row = Row {
        name: "renewals-100k".into(),
        about: "100,000 held locks on Redis, ttl 30 s, for 30 s.".into(),
        contenders: vec![Contender {
            name: "dlock".into(),
            figures: vec![
                ("renewal requests/s", requests),
                ("bytes of ours for each hold", bytes),
                ("age of a lease p99.9 s", oldest),
                ("share of one core", core),
                ("still held", held as f64),
            ],
        }],
        aims: Vec::new(),
    };
    row.aim("at most 150 renewal requests per second", requests, requests <= 150.0);
    row.aim("less than 1 KiB for each", bytes, bytes < 1024.0);
    row.aim("no lease older than half of its ttl (p99.9)", oldest, oldest <= TTL.as_secs_f64() / 2.0);
    row.aim("at most a fifth of one core", core, core <= 0.2);
    row.aim("all still held", held as f64, held == HOLDS + 1);
    Ok(row)
}

fn lock(registry: &Registry, number: usize) -> dlock::Lock {
    registry.lock(Key::text("bench:held:").value(&number)).backend("bench").ttl(TTL)
}

/// Calls of scripts so far, by all clients.
pub(crate) async fn calls(server: &mut MultiplexedConnection) -> Result<u64, Failed> {
    let text: String = redis::cmd("INFO").arg("commandstats").query_async(server).await?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(of("evalsha") + of("eval"))
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let fields: HashMap<_, _> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let kib = fields.get("VmRSS").and_then(|text| text.trim().split(' ').next()?.parse::<u64>().ok());
    Ok(kib.ok_or("this system does not tell the size of a process")? * 1024)
}

/// How long this process has been on a core.
fn cpu() -> Result<Duration, Failed> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // After the name, which may have blanks: state and ten more fields, then user and system time in ticks of 10 ms.
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    let both = ticks(11).zip(ticks(12)).ok_or("this system does not tell the time of a process")?;
    Ok(Duration::from_millis((both.0 + both.1) * 10))
}
