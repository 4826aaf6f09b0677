//! No lock at all: a version column, and the work again where another writer was faster.
//!
//! `cargo run --example optimistic`
//!
//! Where conflicts are rare and the work is short, it is cheaper to look at the end whether somebody else has written,
//! than to keep others out from the beginning. Three processes sell from one row. Each reads it with its version,
//! thinks, and writes only if the version is still the same; if not, `#[optimistic]` runs the function again. The
//! program exits with an error if things were sold twice. (`--unlocked`: nobody looks at the version.)

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::Duration;

use common::{Failure, Job, Stage, database, ensure, finish, say, together};
use dlock::{Conflict, optimistic};
use sqlx::SqlitePool;

const PROCESSES: u32 = 3;
const EACH: u32 = 40;
const STOCK: i64 = 100;

#[derive(Debug, thiserror::Error)]
enum SellError {
    #[error("sold out")]
    SoldOut,
    #[error("another writer was faster")]
    Stale,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The last attempt met a conflict too.
    #[error(transparent)]
    GaveUp(#[from] dlock::Error),
}

/// Which errors are worth another attempt?
impl Conflict for SellError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Stale)
    }
}

/// Sells one thing; says what is left. It runs as a whole, and again as a whole: what it does before the write must
/// not hurt when it is done several times.
#[optimistic(retries = 50, backoff = "5ms..50ms")]
async fn sell(db: &SqlitePool, careless: bool) -> Result<i64, SellError> {
    let (left, version): (i64, i64) = sqlx::query_as("SELECT remaining, version FROM stock").fetch_one(db).await?;
    if left == 0 {
        return Err(SellError::SoldOut);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let update = sqlx::query("UPDATE stock SET remaining = ?, version = version + 1 WHERE version = ? OR ?");
    let written = update.bind(left - 1).bind(version).bind(careless).execute(db).await?;
    if written.rows_affected() == 0 { Err(SellError::Stale) } else { Ok(left - 1) }
}

/// A process that sells as fast as it can, and says what it has sold.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let (db, careless) = (database(&job.folder).await?, job.word(1)?);
    job.ready().await?;
    for _ in 0..EACH {
        match sell(&db, careless).await {
            Ok(left) => say(format!("sold {left}")),
            Err(SellError::SoldOut) => say("sold out"),
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql("CREATE TABLE stock (remaining INTEGER NOT NULL, version INTEGER NOT NULL) STRICT")
        .execute(&db)
        .await?;
    sqlx::query("INSERT INTO stock (remaining, version) VALUES (?, 1)").bind(STOCK).execute(&db).await?;
    let mut workers = Vec::new();
    for number in 1..=PROCESSES {
        workers.push(stage.start(&[&number, &stage.unlocked()])?);
    }
    together(&mut workers).await?;
    let said = finish(workers).await?.concat();

    let mut sold: Vec<i64> = said.iter().filter_map(|line| line.strip_prefix("sold ")?.parse().ok()).collect();
    sold.sort_unstable();
    println!(
        "{} calls in {PROCESSES} processes, {} sold, {} came too late.",
        said.len(),
        sold.len(),
        said.len() - sold.len()
    );
    ensure(sold.iter().copied().eq(0..STOCK), || format!("there were {STOCK}, and each could be sold once"))
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
