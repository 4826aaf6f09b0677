//! The states of an order, changed by several processes: only legal transitions, one at a time.
//!
//! `cargo run --example order_state`
//!
//! One process hears that orders are paid, one that they are cancelled, one ships what is paid; all at once. Each
//! looks at the state, does its work in the world outside, and writes the next state. The lock on the order's id makes
//! these one step: nothing is shipped while it is being cancelled. Every transition goes into a log, with the fencing
//! token under which it was made. The program reads the log and exits with an error if any step in it is illegal.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Failure, Job, Stage, database, ensure, finish, together};
use dlock::distributed_lock;
use futures::future::try_join_all;
use sqlx::SqlitePool;

const ORDERS: i64 = 30;

/// The state after this action; `None` if the action is not allowed in this state.
fn next(action: &str, state: &str) -> Option<&'static str> {
    match (action, state) {
        ("pay", "new") => Some("paid"),
        ("cancel", "new" | "paid") => Some("cancelled"),
        ("ship", "paid") => Some("shipped"),
        _ => None,
    }
}

/// Takes an order one step further, if the action is allowed now; gives the state in which it is then.
#[distributed_lock(key = "order:<id>", ttl = "30s", wait = "20s", fence = token)]
async fn step(db: &SqlitePool, id: i64, action: &str) -> Result<String, Failure> {
    let state: String = sqlx::query_scalar("SELECT state FROM orders WHERE id = ?").bind(id).fetch_one(db).await?;
    let Some(next) = next(action, &state) else {
        return Ok(state);
    };
    // Takes the money, gives it back, sends the parcel. An `UPDATE … WHERE state = …` alone comes too late for this.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("UPDATE orders SET state = ? WHERE id = ?").bind(next).bind(id).execute(&mut *transaction).await?;
    sqlx::query("INSERT INTO log (id, action, was, now, token) VALUES (?, ?, ?, ?, ?)")
        .bind(id)
        .bind(action)
        .bind(&state)
        .bind(next)
        .bind(i64::try_from(token.get())?)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(next.into())
}

/// A process that knows one action, and takes it on all of its orders at once; every second one is cancelled.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let (db, action) = (database(&job.folder).await?, job.word::<String>(0)?);
    job.ready().await?;
    let orders = (1..=ORDERS).filter(|id| action != "cancel" || id % 2 == 0);
    try_join_all(orders.map(async |id| {
        // Who comes to an order first is luck: so some of them are met in every order of events.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..200))).await;
        // Whoever ships looks again until the order is paid, or is over.
        while step(&db, id, &action).await? == "new" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, Failure>(())
    }))
    .await?;
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL) STRICT;
         CREATE TABLE log (seq INTEGER PRIMARY KEY, id INTEGER NOT NULL, action TEXT NOT NULL, was TEXT NOT NULL,
                           now TEXT NOT NULL, token INTEGER NOT NULL) STRICT;",
    )
    .execute(&db)
    .await?;
    for id in 1..=ORDERS {
        sqlx::query("INSERT INTO orders (id, state) VALUES (?, 'new')").bind(id).execute(&db).await?;
    }
    let mut workers = vec![stage.start(&[&"pay"])?, stage.start(&[&"cancel"])?, stage.start(&[&"ship"])?];
    together(&mut workers).await?;
    finish(workers).await?;

    let log = sqlx::query_as("SELECT id, action, was, now, token FROM log ORDER BY seq").fetch_all(&db).await?;
    let mut orders: BTreeMap<i64, (String, i64)> = (1..=ORDERS).map(|id| (id, ("new".into(), 0))).collect();
    for row in &log {
        let (id, action, was, now, token): &(i64, String, String, String, i64) = row;
        let (state, last) = orders.get(id).ok_or("an unknown order")?;
        let legal = was == state && next(action, was) == Some(now.as_str()) && token > last;
        ensure(legal, || format!("order {id} was {state:?} after token {last}, and then there is {row:?}"))?;
        orders.insert(*id, (now.clone(), *token));
    }
    let ended = |end: &str| orders.values().filter(|(state, _)| state == end).count();
    let (shipped, cancelled) = (ended("shipped"), ended("cancelled"));
    println!("{ORDERS} orders, {} transitions, all legal: {shipped} shipped, {cancelled} cancelled.", log.len());
    ensure(shipped + cancelled == orders.len(), || "an order is neither shipped nor cancelled".into())
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
