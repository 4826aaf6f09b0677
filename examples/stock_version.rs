//! The stock of a shop without any lock: a version column in the shop's own table of MySQL, MariaDB or PostgreSQL.
//!
//! `cargo run --example stock_version -- mysql://user:password@host/database` (or `postgres://…`)
//!
//! Thirty buyers want one of ten things. Each reads the stock with its version, thinks, and writes only if the version is still
//! the same. A buyer that was slower is told so by a `Conflict`, and `#[optimistic]` runs the function again. The program exits
//! with an error if the table does not agree with what was sold.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::time::Duration;

use dlock::{optimistic, versioned};
use futures::future::try_join_all;
use sqlx::{AssertSqlSafe, MySqlPool, PgPool, Row};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The table, the column by which a row is found, and the column of versions.
const IN_MYSQL: versioned::mysql::Versioned = versioned::mysql::Versioned::new("dlock_example_stock", "id", "version");
const IN_POSTGRES: versioned::postgres::Versioned =
    versioned::postgres::Versioned::new("dlock_example_stock", "id", "version");

const TABLE: &str = "CREATE TABLE IF NOT EXISTS dlock_example_stock \
    (id BIGINT PRIMARY KEY, stock BIGINT NOT NULL, version BIGINT NOT NULL)";
const START: i64 = 10;
const BUYERS: usize = 30;

/// Says whether there was one left. With each conflict another buyer has got one, so nobody meets more conflicts than there are
/// things.
#[optimistic(retries = 10, backoff = "1ms..20ms")]
async fn buy_in_mysql(shop: &MySqlPool, id: i64) -> Result<bool, Failure> {
    let seen = stock_in_mysql(shop, id).await?;
    if seen.left == 0 {
        return Ok(false);
    }
    think().await;
    let mut conn = shop.acquire().await?;
    IN_MYSQL.write(&mut conn, id, seen.version, "stock = ?", |query| query.bind(seen.left - 1)).await?;
    Ok(true)
}

/// The same. PostgreSQL numbers its placeholders.
#[optimistic(retries = 10, backoff = "1ms..20ms")]
async fn buy_in_postgres(shop: &PgPool, id: i64) -> Result<bool, Failure> {
    let seen = stock_in_postgres(shop, id).await?;
    if seen.left == 0 {
        return Ok(false);
    }
    think().await;
    let mut conn = shop.acquire().await?;
    IN_POSTGRES.write(&mut conn, id, seen.version, "stock = $1", |query| query.bind(seen.left - 1)).await?;
    Ok(true)
}

/// A row of the table.
struct Stock {
    left: i64,
    version: i64,
}

async fn stock_in_mysql(shop: &MySqlPool, id: i64) -> Result<Stock, Failure> {
    let read = IN_MYSQL.read(&mut *shop.acquire().await?, "stock", id).await?.ok_or("there is no such thing")?;
    Ok(Stock { left: read.row.try_get(0)?, version: read.version })
}

async fn stock_in_postgres(shop: &PgPool, id: i64) -> Result<Stock, Failure> {
    let read = IN_POSTGRES.read(&mut *shop.acquire().await?, "stock", id).await?.ok_or("there is no such thing")?;
    Ok(Stock { left: read.row.try_get(0)?, version: read.version })
}

async fn think() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// A new thing. Its versions begin with the server's time, so that none comes again when a row is deleted and made anew.
fn put(id: i64, first_version: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("INSERT INTO dlock_example_stock VALUES ({id}, {START}, {first_version})"))
}

async fn sell_in_mysql(url: &str, id: i64) -> Result<Sold, Failure> {
    let shop = MySqlPool::connect(url).await?;
    sqlx::raw_sql(TABLE).execute(&shop).await?;
    sqlx::raw_sql(put(id, versioned::mysql::Versioned::FIRST_VERSION)).execute(&shop).await?;
    sell(|| stock_in_mysql(&shop, id), || buy_in_mysql(&shop, id)).await
}

async fn sell_in_postgres(url: &str, id: i64) -> Result<Sold, Failure> {
    let shop = PgPool::connect(url).await?;
    sqlx::raw_sql(TABLE).execute(&shop).await?;
    sqlx::raw_sql(put(id, versioned::postgres::Versioned::FIRST_VERSION)).execute(&shop).await?;
    sell(|| stock_in_postgres(&shop, id), || buy_in_postgres(&shop, id)).await
}

/// The pieces that the buyers got, the pieces that are left, and how often the row was written.
struct Sold {
    bought: Vec<bool>,
    left: i64,
    writes: i64,
}

/// Lets all buyers buy at once.
async fn sell<R, B>(stock: impl Fn() -> R, buy: impl Fn() -> B) -> Result<Sold, Failure>
where
    R: Future<Output = Result<Stock, Failure>>,
    B: Future<Output = Result<bool, Failure>>,
{
    let first = stock().await?;
    let bought = try_join_all((0..BUYERS).map(|_| buy())).await?;
    let last = stock().await?;
    Ok(Sold { bought, left: last.left, writes: last.version - first.version })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: stock_version mysql://user:password@host/database")?;
    let id = fastrand::i64(1..);
    let sold =
        if url.starts_with("postgres") { sell_in_postgres(&url, id).await } else { sell_in_mysql(&url, id).await };
    let Sold { bought, left, writes } = sold?;
    let sold = i64::try_from(bought.iter().filter(|bought| **bought).count())?;
    println!("{sold} of {START} were sold to {BUYERS} buyers, and {left} are left");
    let right = sold == START && left == 0 && writes == sold;
    if right { Ok(()) } else { Err("the table does not agree with what was sold".into()) }
}
