//! A withdrawal whose lock and data are one transaction of PostgreSQL: what the body has written is there after `Ok`, and only
//! then.
//!
//! `cargo run --example withdraw -- postgres://user:password@host/database`
//!
//! Twenty tasks withdraw 10 from an account that has 100. Each reads the balance, thinks, and writes what is left. Half of them
//! fail after they have written. The lock is the account's own row, so nothing is written beside it, and what a failed body
//! wrote is undone. On MySQL and MariaDB it is `dlock::mysql::transaction`.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use dlock::{Held, distributed_lock, postgres};
use futures::future::join_all;
use sqlx::{Connection, Executor, PgConnection};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const START: i64 = 100;
const AMOUNT: i64 = 10;

/// The lock is the row of this account.
#[distributed_lock(key = "<account>", ttl = "10s", wait = "1m", backend = "bank", guard = held)]
async fn withdraw(account: i64, fails: bool) -> Result<(), Failure> {
    write_what_is_left(&held, account).await?;
    if fails { Err("a later step failed".into()) } else { Ok(()) }
}

async fn write_what_is_left(held: &Held, account: i64) -> Result<(), Failure> {
    let mut transaction = postgres::transaction(held)?;
    let mut conn = transaction.conn().await?;
    let select = sqlx::query_scalar("SELECT balance FROM dlock_example_accounts WHERE id = $1").bind(account);
    let balance: i64 = select.fetch_one(&mut *conn).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let update = sqlx::query("UPDATE dlock_example_accounts SET balance = $2 WHERE id = $1");
    update.bind(account).bind(balance - AMOUNT).execute(&mut *conn).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: withdraw postgres://user:password@host/database")?;
    let mut conn = PgConnection::connect(&url).await?;
    conn.execute("CREATE TABLE IF NOT EXISTS dlock_example_accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
        .await?;
    let account = fastrand::i64(1..);
    let open = sqlx::query("INSERT INTO dlock_example_accounts VALUES ($1, $2)");
    open.bind(account).bind(START).execute(&mut conn).await?;

    dlock::connect("bank", &format!("{url}?way=row&table=dlock_example_accounts&column=id")).await?;
    let results = join_all((0..20).map(|number| withdraw(account, number % 2 == 0))).await;
    dlock::shutdown(Duration::from_secs(5)).await;

    let paid = i64::try_from(results.iter().filter(|result| result.is_ok()).count())?;
    let balance = sqlx::query_scalar("SELECT balance FROM dlock_example_accounts WHERE id = $1").bind(account);
    let balance: i64 = balance.fetch_one(&mut conn).await?;
    println!("{paid} withdrawals were paid, and {balance} of {START} are left");
    let right = paid == 10 && balance == START - paid * AMOUNT;
    if right { Ok(()) } else { Err("the account does not agree with what was paid".into()) }
}
