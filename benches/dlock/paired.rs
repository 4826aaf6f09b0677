//! A pair of Redis and a lease row that nobody else wants, beside the same cycle on each of its two stores. A pair asks them
//! one after the other, so its floor is the sum of their times.

use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::{Instance, Redis};

use crate::Failed;
use crate::sql::{Make, Way, server_of};
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "gate:<id>", ttl = "30s", backend = "bench-gate")]
async fn on_the_gate(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "authority:<id>", ttl = "30s", backend = "bench-authority")]
async fn on_the_authority(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "pair:<id>", ttl = "30s", backend = "bench-pair")]
async fn on_the_pair(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

const CONTENDERS: [&str; 3] = ["redis alone", "lease row alone", "pair"];
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);

/// The most that a cycle of the pair shall take, beside the sum of both.
const AIM: f64 = 1.10;

pub(crate) fn row() -> Result<Row, Failed> {
    let gate = Instance::start(Redis::default())?;
    let authority = server_of(Make::MariaDb, Way::Lease)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let registry = Registry::global();
    runtime.block_on(async {
        registry.connect("bench-gate", &gate.url()).await?;
        registry.connect("bench-authority", &authority.url()).await?;
        registry.connect("bench-pair", "paired://?gate=bench-gate&authority=bench-authority").await
    })?;
    // Cycles per second, and the median and 99th percentile of a cycle in µs.
    let mut rounds: [Vec<[f64; 3]>; 3] = Default::default();
    // The first turns warm connections and rows up, and are not counted.
    for round in 0..=ROUNDS {
        let mut order = [0, 1, 2];
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let measured = runtime.block_on(measure(contender))?;
            if round > 0 {
                rounds[contender].push(measured);
            }
        }
    }
    let mut row = Row {
        name: "paired-1".to_owned(),
        about: "Acquire and release, 1 task: Redis as the gate of a lease row on MariaDB, and each of them alone."
            .to_owned(),
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    // Round by round, so that a slow second of the disk hits all sides.
    let sum = |round: usize| rounds[0][round][1] + rounds[1][round][1];
    for (name, own) in CONTENDERS.iter().zip(&rounds) {
        let middle = |figure: usize| median(own.iter().map(|round| round[figure]).collect());
        let ratio = median(own.iter().enumerate().map(|(round, own)| own[1] / sum(round)).collect());
        let figures =
            vec![("cycles/s", middle(0)), ("p50 µs", middle(1)), ("p99 µs", middle(2)), ("p50 × sum of both", ratio)];
        row.contenders.push(Contender { name: (*name).to_owned(), figures });
    }
    let ratio = row.figure("pair", "p50 × sum of both");
    row.aim(&format!("p50 at most {AIM:.2} × the sum of both stores"), ratio, ratio <= AIM);
    Ok(row)
}

async fn measure(contender: usize) -> Result<[f64; 3], Failed> {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < ROUND {
        let begun = Instant::now();
        match contender {
            0 => on_the_gate(1).await?,
            1 => on_the_authority(1).await?,
            _ => on_the_pair(1).await?,
        }
        times.push(begun.elapsed().as_nanos() as u64);
    }
    let wall = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let micros = |share| percentile(&times, share) as f64 / 1000.0;
    Ok([times.len() as f64 / wall, micros(0.5), micros(0.99)])
}
