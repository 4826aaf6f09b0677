//! A leader that starts scheduled tasks, while the leaders change all the time.
//!
//! `cargo run --example leader_schedule`
//!
//! With a leader, one node has the schedule in its memory, and the others do not ask the store for every task. But a new
//! leader does not know which tasks the leader before has started. So the task is a `#[scheduled_lock]` too, with
//! `once_per`: each period's run is started once, whoever leads. Here each leader starts what is due, leads for half a
//! period, and resigns. The program exits with an error if two runs were started in one period, or if nobody but one node
//! has led.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Failure, Job, Stage, database, ensure, finish, say};
use dlock::{Leader, scheduled_lock};
use sqlx::SqlitePool;

const NODES: u32 = 3;
const PERIOD: Duration = Duration::from_secs(2);

/// One start in each period. If the leader before has started it, the call returns without running the body.
#[scheduled_lock(name = "report", at_most = "10s", once_per = "2s")]
async fn report(db: &SqlitePool, node: u32, called_ms: i64) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO starts (node, called_ms, begun_ms) VALUES (?, ?, ?)");
    insert.bind(node).bind(called_ms).bind(now_ms()?).execute(db).await?;
    Ok(())
}

fn now_ms() -> Result<i64, Failure> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// The work of a leader in its term: five calls of `report`, over half a period.
async fn schedule(leader: &Leader, db: &SqlitePool, node: u32) -> Result<(), Failure> {
    say(format!("leads in term {}", leader.term()));
    let mut tick = tokio::time::interval(PERIOD / 10);
    for _ in 0..5 {
        tick.tick().await;
        report(db, node, now_ms()?).await?;
    }
    Ok(())
}

/// A node leads whenever it can, until the parent ends it.
async fn node(job: &mut Job) -> Result<(), Failure> {
    let (db, node): (_, u32) = (database(&job.folder).await?, job.word(0)?);
    let election = dlock::elect("scheduler").ttl(Duration::from_secs(5));
    loop {
        tokio::select! {
            led = election.lead(async |leader| schedule(&leader, &db, node).await) => led??,
            end = job.order() => return end.map(drop),
        }
        // The others come first.
        tokio::time::sleep(PERIOD / 4).await;
    }
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql("CREATE TABLE starts (node INT NOT NULL, called_ms INT NOT NULL, begun_ms INT NOT NULL) STRICT")
        .execute(&db)
        .await?;
    let mut nodes = stage.start_all(NODES)?;
    tokio::time::sleep(4 * PERIOD).await;
    let nodes_that_started = "SELECT count(DISTINCT node) FROM starts";
    while sqlx::query_scalar::<_, i64>(nodes_that_started).fetch_one(&db).await? < 2 {
        tokio::time::sleep(PERIOD / 10).await;
    }
    for node in &mut nodes {
        node.order("end").await?;
    }
    let terms: Vec<usize> = finish(nodes).await?.iter().map(Vec::len).collect();
    println!("The nodes have led {terms:?} times.");

    let period = i64::try_from(PERIOD.as_millis())?;
    let query = "SELECT node, called_ms, begun_ms FROM starts ORDER BY begun_ms";
    let starts: Vec<(u32, i64, i64)> = sqlx::query_as(query).fetch_all(&db).await?;
    // A start belongs to the boundary that was nearest when the store answered: between the call and the begin of the body.
    let nearest = |ms: i64| (ms + period / 2) / period;
    let mut last = None;
    for (node, called, begun) in &starts {
        let number = last.map_or(nearest(*called), |last: i64| nearest(*called).max(last + 1));
        ensure(number <= nearest(*begun), || format!("two runs were started in one period: {starts:?}"))?;
        println!("period {number}: started by node {node}");
        last = Some(number);
    }
    ensure(starts.len() > 1, || "hardly anything was started".into())
}

fn main() -> std::process::ExitCode {
    common::main(parent, node)
}
