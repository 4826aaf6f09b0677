//! A payment that is charged once, however often it is asked for.
//!
//! `cargo run --example payment`
//!
//! A customer clicks twice, and the client sends again what it heard no answer to: two processes get the same payment
//! several times at once, and a third gets it again later. The lock on the payment's id makes "was it charged? then
//! charge it" one step, and who comes second gets the receipt of who came first. The program counts the charges in the
//! bank's ledger and exits with an error if there are more or fewer than one for each payment.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{Failure, Job, Stage, database, ensure, finish, say, together};
use dlock::distributed_lock;
use futures::future::try_join_all;
use sqlx::SqlitePool;

const PAYMENTS: u64 = 20;

/// Charges a payment, unless that was done already; gives the receipt either way.
///
/// The wait is longer than a charge takes, since a second click shall get the receipt and not an error.
#[distributed_lock(key = "payment:<id>", ttl = "30s", wait = "20s")]
async fn pay(db: &SqlitePool, id: u64, cents: u32) -> Result<String, Failure> {
    if let Some(receipt) = remembered(db, id).await? {
        return Ok(receipt);
    }
    let receipt = charge(db, id, cents).await?;
    // A process that dies here has charged and not remembered. So a bank has to be told the payment's id with each
    // charge, and asked for it by who finds a payment begun; the lock says that nobody else is at it meanwhile.
    remember(db, id, &receipt).await?;
    Ok(receipt)
}

async fn remembered(db: &SqlitePool, id: u64) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT receipt FROM payments WHERE id = ?").bind(id as i64).fetch_optional(db).await
}

async fn remember(db: &SqlitePool, id: u64, receipt: &str) -> sqlx::Result<()> {
    let insert = sqlx::query("INSERT OR REPLACE INTO payments (id, receipt) VALUES (?, ?)");
    insert.bind(id as i64).bind(receipt).execute(db).await.map(drop)
}

/// The bank: takes its time, and does what it is told as often as it is told.
async fn charge(db: &SqlitePool, id: u64, cents: u32) -> sqlx::Result<String> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    let insert = sqlx::query("INSERT INTO charges (payment, cents) VALUES (?, ?)");
    let number = insert.bind(id as i64).bind(cents).execute(db).await?.last_insert_rowid();
    Ok(format!("receipt-{number}"))
}

/// A process of the shop: it gets every payment twice at the same time, and says each receipt.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    job.ready().await?;
    let clicks = (0..PAYMENTS).flat_map(|id| [id, id]);
    let pays = clicks.map(async |id| Ok::<_, Failure>((id, pay(&db, id, 999).await?)));
    for (id, receipt) in try_join_all(pays).await? {
        say(format!("{id} {receipt}"));
    }
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql(
        "CREATE TABLE payments (id INTEGER PRIMARY KEY, receipt TEXT NOT NULL) STRICT;
         CREATE TABLE charges (number INTEGER PRIMARY KEY, payment INTEGER NOT NULL, cents INTEGER NOT NULL) STRICT;",
    )
    .execute(&db)
    .await?;

    println!("Two processes get {PAYMENTS} payments, each of them twice, at the same time.");
    let mut workers = stage.start_all(2)?;
    together(&mut workers).await?;
    let mut answers = finish(workers).await?.concat();
    println!("The client has heard nothing, and sends them all again to a third.");
    let mut retry = [stage.start(&[&3])?];
    together(&mut retry).await?;
    answers.extend(finish(retry.into()).await?.concat());

    let charges: Vec<(i64, i64)> =
        sqlx::query_as("SELECT payment, count(*) FROM charges GROUP BY payment").fetch_all(&db).await?;
    for (payment, count) in &charges {
        ensure(*count == 1, || format!("payment {payment} was charged {count} times"))?;
    }
    ensure(charges.len() as u64 == PAYMENTS, || format!("{} of {PAYMENTS} payments were charged", charges.len()))?;
    let mut receipts: HashMap<&str, &str> = HashMap::new();
    for (id, receipt) in answers.iter().filter_map(|answer| answer.split_once(' ')) {
        let first = *receipts.entry(id).or_insert(receipt);
        ensure(first == receipt, || format!("payment {id} has two receipts, {first} and {receipt}"))?;
    }
    println!("{} calls, {} charges, one receipt for each payment.", answers.len(), charges.len());
    Ok(())
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
