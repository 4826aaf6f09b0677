//! Money from one account to another: two locks, taken together.
//!
//! `cargo run --example transfer`
//!
//! Three processes send money around a ring of accounts, and back, all at once. Each transfer needs both accounts. By
//! hand, two opposite transfers would wait for each other; `keys` takes several locks in an order that is the same for
//! every caller, all of them or none. The writes carry the tokens of both locks. The program exits with an error if
//! money came or went, or if a transfer had to give up.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::{Duration, Instant};

use common::{Failure, Job, Stage, database, ensure, finish, say, together};
use dlock::distributed_lock;
use dlock::fenced::sqlite as fenced;
use futures::future::try_join_all;
use sqlx::SqlitePool;

const ACCOUNTS: i64 = 3;
const EACH: i64 = 1000;
const PROCESSES: u32 = 3;
const ROUNDS: i64 = 8;

/// Moves money, if there is enough of it. Both keys are one lock if both accounts are one.
#[distributed_lock(keys = ["account:<from>", "account:<to>"], ttl = "30s", wait = "60s", guard = held)]
async fn transfer(db: &SqlitePool, from: i64, to: i64, amount: i64) -> Result<bool, Failure> {
    let (rich, poor) = (balance(db, from).await?, balance(db, to).await?);
    if from == to || rich < amount {
        return Ok(false);
    }
    // The time of a bank's checks. Without the locks, two transfers would now write from the same old balances.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    for account in &held {
        // Each account knows the highest token with which it was written.
        fenced::admit(&mut transaction, &account.fence()?, account.key().as_str()).await?;
    }
    for (account, balance) in [(from, rich - amount), (to, poor + amount)] {
        let update = sqlx::query("UPDATE accounts SET balance = ? WHERE id = ?");
        update.bind(balance).bind(account).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

async fn balance(db: &SqlitePool, account: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT balance FROM accounts WHERE id = ?").bind(account).fetch_one(db).await
}

/// A process of the bank: in each round it sends money once around the ring in both directions, all at the same time.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    job.ready().await?;
    for round in 1..=ROUNDS {
        let there = (0..ACCOUNTS).map(|from| (from, (from + 1) % ACCOUNTS));
        let back = (0..ACCOUNTS).map(|to| ((to + 1) % ACCOUNTS, to));
        let all = there.chain(back).map(|(from, to)| transfer(&db, from, to, 10 * round + from));
        let done = try_join_all(all).await?;
        say(done.into_iter().filter(|moved| *moved).count());
    }
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    fenced::prepare(&mut *db.acquire().await?).await?;
    sqlx::raw_sql("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT")
        .execute(&db)
        .await?;
    for id in 0..ACCOUNTS {
        sqlx::query("INSERT INTO accounts (id, balance) VALUES (?, ?)").bind(id).bind(EACH).execute(&db).await?;
    }
    let mut workers = stage.start_all(PROCESSES)?;
    together(&mut workers).await?;
    let began = Instant::now();
    let said = finish(workers).await?.concat();
    let moved: u32 = said.iter().filter_map(|line| line.parse::<u32>().ok()).sum();

    let balances: Vec<i64> = sqlx::query_scalar("SELECT balance FROM accounts ORDER BY id").fetch_all(&db).await?;
    let sum: i64 = balances.iter().sum();
    println!(
        "{moved} transfers in {:.1} s; the balances are {balances:?}, together {sum}.",
        began.elapsed().as_secs_f64()
    );
    ensure(sum == ACCOUNTS * EACH, || format!("there were {} in the beginning", ACCOUNTS * EACH))
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
