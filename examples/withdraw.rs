//! A withdrawal whose lock and data are one transaction of PostgreSQL, MySQL or MariaDB: what the body has written is there after
//! `Ok`, and only then.
//!
//! `cargo run --example withdraw -- postgres://user:password@host/database` (or `mysql://…`)
//!
//! Twenty tasks withdraw 10 from an account that has 100. Each reads the balance, thinks, and writes what is left. Half of them
//! fail after they have written. The lock is the account's own row, so nothing is written beside it, and what a failed body
//! wrote is undone.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use dlock::{Held, distributed_lock, mysql, postgres};
use futures::future::join_all;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const START: i64 = 100;
const AMOUNT: i64 = 10;

/// The lock is the row of this account.
#[distributed_lock(key = "<account>", ttl = "10s", wait = "1m", backend = "bank", guard = held)]
async fn withdraw(is_postgres: bool, account: i64, fails: bool) -> Result<(), Failure> {
    if is_postgres {
        write_in_postgres(&held, account).await?
    } else {
        write_in_mysql(&held, account).await?
    }
    if fails { Err("a later step failed".into()) } else { Ok(()) }
}

async fn write_in_postgres(held: &Held, account: i64) -> Result<(), Failure> {
    let mut transaction = postgres::transaction(held)?;
    let mut conn = transaction.conn().await?;
    let select = sqlx::query_scalar("SELECT balance FROM dlock_example_accounts WHERE id = $1").bind(account);
    let balance: i64 = select.fetch_one(&mut *conn).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let update = sqlx::query("UPDATE dlock_example_accounts SET balance = $1 WHERE id = $2");
    update.bind(balance - AMOUNT).bind(account).execute(&mut *conn).await?;
    Ok(())
}

/// The same, with this server's placeholders.
async fn write_in_mysql(held: &Held, account: i64) -> Result<(), Failure> {
    let mut transaction = mysql::transaction(held)?;
    let mut conn = transaction.conn().await?;
    let select = sqlx::query_scalar("SELECT balance FROM dlock_example_accounts WHERE id = ?").bind(account);
    let balance: i64 = select.fetch_one(&mut *conn).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let update = sqlx::query("UPDATE dlock_example_accounts SET balance = ? WHERE id = ?");
    update.bind(balance - AMOUNT).bind(account).execute(&mut *conn).await?;
    Ok(())
}

/// Somebody who looks at the accounts from outside.
enum Bank {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

impl Bank {
    async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(match url.starts_with("postgres") {
            true => Self::Postgres(PgConnection::connect(url).await?),
            false => Self::MySql(MySqlConnection::connect(url).await?),
        })
    }

    async fn open(&mut self, account: i64) -> Result<(), Failure> {
        let sql = AssertSqlSafe(format!(
            "CREATE TABLE IF NOT EXISTS dlock_example_accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL); \
             INSERT INTO dlock_example_accounts VALUES ({account}, {START})"
        ));
        match self {
            Self::Postgres(conn) => _ = sqlx::raw_sql(sql).execute(conn).await?,
            Self::MySql(conn) => _ = sqlx::raw_sql(sql).execute(conn).await?,
        }
        Ok(())
    }

    async fn balance(&mut self, account: i64) -> Result<i64, Failure> {
        let sql = AssertSqlSafe(format!("SELECT balance FROM dlock_example_accounts WHERE id = {account}"));
        Ok(match self {
            Self::Postgres(conn) => sqlx::query_scalar(sql).fetch_one(conn).await?,
            Self::MySql(conn) => sqlx::query_scalar(sql).fetch_one(conn).await?,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: withdraw postgres://user:password@host/database")?;
    let (mut bank, account) = (Bank::connect(&url).await?, fastrand::i64(1..));
    bank.open(account).await?;

    dlock::connect("bank", &format!("{url}?way=row&table=dlock_example_accounts&column=id")).await?;
    let is_postgres = matches!(bank, Bank::Postgres(_));
    let results = join_all((0..20).map(|number| withdraw(is_postgres, account, number % 2 == 0))).await;
    dlock::shutdown(Duration::from_secs(5)).await;

    let paid = i64::try_from(results.iter().filter(|result| result.is_ok()).count())?;
    let balance = bank.balance(account).await?;
    println!("{paid} withdrawals were paid, and {balance} of {START} are left");
    let right = paid == 10 && balance == START - paid * AMOUNT;
    if right { Ok(()) } else { Err("the account does not agree with what was paid".into()) }
}
