//! A number of its own for each living process, as the ids of Snowflake need.
//!
//! `cargo run --example worker_id`
//!
//! An id is made of the time, the number of the worker, and a counter: unique without asking anybody, as long as no two
//! workers have one number at a time, and the clock of the next one is not behind. So the number is a permit, and a node waits
//! before its first id for as long as the clocks of the hosts may differ: of `permits(3)` each holder has its own slot. A fourth
//! process waits. When one of the three is killed, its number comes back as soon as its ttl has ended, and the fourth
//! goes on with it. The program exits with an error if any id was made twice.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Failure, Job, Stage, database, ensure, finish, say};
use dlock::distributed_lock;
use sqlx::SqlitePool;

const WORKERS: u32 = 3;
const TTL: Duration = Duration::from_secs(1);
/// Longer than the clocks of the hosts differ. Otherwise a host whose clock is behind would make the ids of the one before again.
const CLOCK_DIFFERENCE: Duration = Duration::from_millis(500);

/// The whole life of a node: it has a number as long as it is in here, and is dropped if it loses it.
#[distributed_lock(key = "worker-id", mode = permits(3), ttl = TTL, wait = "forever", guard = held)]
async fn node(job: &mut Job, db: &SqlitePool) -> Result<(), Failure> {
    let mut ids = Snowflake::new(held.slot().ok_or("a permit has a number")?);
    say(format!("number {}", ids.worker));
    tokio::time::sleep(CLOCK_DIFFERENCE).await;
    loop {
        for _ in 0..5 {
            // Local and cheap. After a pause of the whole process the number may be another one's.
            held.check()?;
            sqlx::query("INSERT INTO ids (id) VALUES (?)").bind(ids.next()?).execute(db).await?;
        }
        tokio::select! {
            biased;
            end = job.order() => return end.map(drop),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
}

/// 41 bits of milliseconds, 10 bits for the worker, 12 bits of a counter.
struct Snowflake {
    worker: u32,
    millisecond: i64,
    counter: i64,
}

impl Snowflake {
    const fn new(worker: u32) -> Self {
        Self { worker, millisecond: 0, counter: 0 }
    }

    fn next(&mut self) -> Result<i64, Failure> {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
        // A clock that is set back must not make the same ids again: the counter goes on in the latest millisecond.
        if now > self.millisecond {
            (self.millisecond, self.counter) = (now, 0);
        } else if self.counter < 0xfff {
            self.counter += 1;
        } else {
            (self.millisecond, self.counter) = (self.millisecond + 1, 0);
        }
        Ok(self.millisecond << 22 | i64::from(self.worker) << 12 | self.counter)
    }
}

async fn worker(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    node(job, &db).await
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql("CREATE TABLE ids (id INTEGER NOT NULL) STRICT").execute(&db).await?;

    let mut nodes = stage.start_all(WORKERS)?;
    let mut numbers = Vec::new();
    for node in &mut nodes {
        numbers.push(node.hear("number").await?);
    }
    println!("{WORKERS} nodes have the numbers {}. A fourth waits.", numbers.join(", "));
    let mut different = numbers.clone();
    different.sort();
    ensure(different == ["0", "1", "2"], || "the numbers should be 0, 1 and 2".into())?;
    let mut fourth = stage.start(&[&4])?;
    made(&db, 500).await?;

    nodes.remove(0).kill().await?;
    let killed = Instant::now();
    let number = fourth.hear("number").await?;
    println!("One is killed; {:.1} s later the fourth has number {number}.", killed.elapsed().as_secs_f64());
    ensure(number == numbers[0], || format!("it should be the killed one's number, {}", numbers[0]))?;
    made(&db, 500).await?;

    nodes.push(fourth);
    for node in &mut nodes {
        node.order("end").await?;
    }
    finish(nodes).await?;
    let (all, different) =
        sqlx::query_as::<_, (i64, i64)>("SELECT count(*), count(DISTINCT id) FROM ids").fetch_one(&db).await?;
    println!("{all} ids were made, {different} of them different.");
    ensure(all == different, || "an id was made twice".into())
}

/// Waits until so many further ids were made.
async fn made(db: &SqlitePool, more: i64) -> Result<(), Failure> {
    let count = async || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM ids").fetch_one(db).await;
    let enough = count().await? + more;
    while count().await? < enough {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
