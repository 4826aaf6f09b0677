//! A service moves its locks from one store to another, and nobody has an hour off.
//!
//! `cargo run --example migration`
//!
//! Three processes count orders under one lock, in a database that knows no locks of its own. Meanwhile they are replaced
//! one after another, twice: first they lock in both stores, and then in the new one alone. At every moment of it each two
//! processes have a store in common, so no order is lost. With `--unlocked` nobody has one, and the count is wrong.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::Duration;

use common::{Failure, Job, Stage, Worker, database, ensure, say};
use dlock::distributed_lock;
use sqlx::SqlitePool;

const PROCESSES: usize = 3;

/// So many orders are counted before the next process is replaced.
const BETWEEN: i64 = 10;

/// Counts an order: what was read is written back with one more, as a program does that knows nothing of others.
#[distributed_lock(key = "orders", ttl = "30s", wait = "60s")]
async fn count(db: &SqlitePool) -> Result<(), Failure> {
    let orders = orders(db).await?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    sqlx::query("UPDATE orders SET n = ?").bind(orders + 1).execute(db).await?;
    Ok(())
}

async fn orders(db: &SqlitePool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT n FROM orders").fetch_one(db).await
}

/// A process of the service, in one of the three states of the move. It counts until it is told to end.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    // The old store is `main`, which every example connects to.
    let state: String = job.word(0)?;
    if state != "old" {
        dlock::connect("new", &format!("sqlite://{}", job.folder.join("new.db").display())).await?;
        dlock::connect("both", "migrating://?old=main&new=new").await?;
        dlock::set_default(&state)?;
    }
    let mut counted = 0;
    loop {
        // An order that was begun is counted to its end.
        let last = futures::FutureExt::now_or_never(job.order()).transpose()?.is_some();
        if last {
            say(format!("counted {counted}"));
            return Ok(());
        }
        count(&db).await?;
        counted += 1;
        if counted == 1 {
            say("works");
        }
    }
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql("CREATE TABLE orders (n INTEGER NOT NULL) STRICT; INSERT INTO orders VALUES (0)")
        .execute(&db)
        .await?;
    let mut counted = 0;
    let mut service = Vec::new();
    for _ in 0..PROCESSES {
        service.push(started(stage, "old").await?);
    }
    // A step begins when the one before it has reached every process.
    for state in ["both", "new"] {
        for process in &mut service {
            let former = std::mem::replace(process, started(stage, state).await?);
            counted += ended(former).await?;
            let before = orders(&db).await?;
            while orders(&db).await? < before + BETWEEN {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        println!(
            "All processes lock in {}; {} orders so far.",
            if state == "both" { "both stores" } else { "the new store" },
            orders(&db).await?
        );
    }
    for process in service {
        counted += ended(process).await?;
    }
    let orders = orders(&db).await?;
    println!("{counted} orders came in, and {orders} were counted.");
    ensure(counted > 0 && orders == counted, || format!("{} orders were lost", counted - orders))
}

/// A new process of the service. It works before the one that it replaces ends.
async fn started(stage: &Stage, state: &str) -> Result<Worker, Failure> {
    let mut process = stage.start(&[&state])?;
    process.hear("works").await?;
    Ok(process)
}

/// Ends a process in order; gives how many orders it has counted.
async fn ended(mut process: Worker) -> Result<i64, Failure> {
    process.order("end").await?;
    let counted = process.hear("counted").await?.parse()?;
    process.end().await?;
    Ok(counted)
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
