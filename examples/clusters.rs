//! Locks on two clusters: each product has its lock on one of them, so together they take more locks per second.
//!
//! `cargo run --example clusters`
//!
//! Four processes sell eight products. `backend = cluster(id)` chooses the store by the product's number, and every process
//! has the same rule. Each sale notes the store of its lock. The program exits with an error if a sale was lost, if two sales of a
//! product had their locks on different clusters, or if one cluster had no locks. A rule that processes do not share, such as a
//! random one, would lock a product on both clusters at once.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::Duration;

use common::{Failure, Job, Stage, database, ensure, finish, together};
use dlock::distributed_lock;
use futures::future::try_join_all;
use sqlx::SqlitePool;

const PROCESSES: u32 = 4;
const PRODUCTS: i64 = 8;

/// So often each process sells each product.
const SALES: i64 = 10;

/// The names that the stores have in every process. They could be `redis-a` and `redis-b`, or two tables of different
/// databases.
const CLUSTERS: [&str; 2] = ["main", "second"];

/// Which cluster has the lock of this product: by its number alone, so that all processes agree.
fn cluster(id: i64) -> &'static str {
    CLUSTERS[usize::from(id % 2 == 0)]
}

/// Sells one. What was read is written back with one more, as a program does that knows nothing of others.
#[distributed_lock(key = "product:<id>", ttl = "30s", wait = "60s", backend = cluster(id), guard = held)]
async fn sell(db: &SqlitePool, id: i64) -> Result<(), Failure> {
    let sold: i64 = sqlx::query_scalar("SELECT sold FROM products WHERE id = ?").bind(id).fetch_one(db).await?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    sqlx::query("UPDATE products SET sold = ? WHERE id = ?").bind(sold + 1).bind(id).execute(db).await?;
    sqlx::query("INSERT INTO sales VALUES (?, ?)").bind(id).bind(held.backend()).execute(db).await?;
    Ok(())
}

/// A process of the shop: it sells all products side by side.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    // The first cluster is `main`, which every example connects to.
    dlock::connect("second", &format!("sqlite://{}", job.folder.join("second.db").display())).await?;
    job.ready().await?;
    try_join_all((1..=PRODUCTS).map(async |id| {
        for _ in 0..SALES {
            sell(&db, id).await?;
        }
        Ok::<_, Failure>(())
    }))
    .await
    .map(drop)
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql(
        "CREATE TABLE products (id INTEGER PRIMARY KEY, sold INTEGER NOT NULL) STRICT;
         CREATE TABLE sales (id INTEGER NOT NULL, cluster TEXT NOT NULL) STRICT;",
    )
    .execute(&db)
    .await?;
    for id in 1..=PRODUCTS {
        sqlx::query("INSERT INTO products VALUES (?, 0)").bind(id).execute(&db).await?;
    }
    let mut workers = stage.start_all(PROCESSES)?;
    together(&mut workers).await?;
    finish(workers).await?;

    let made = i64::from(PROCESSES) * PRODUCTS * SALES;
    let sold: i64 = sqlx::query_scalar("SELECT sum(sold) FROM products").fetch_one(&db).await?;
    println!("{made} sales were made, and {sold} were counted.");
    ensure(sold == made, || format!("{} sales were lost", made - sold))?;
    for name in CLUSTERS {
        let (products, locks): (i64, i64) =
            sqlx::query_as("SELECT count(DISTINCT id), count(*) FROM sales WHERE cluster = ?")
                .bind(name)
                .fetch_one(&db)
                .await?;
        println!("  {name}: {locks} locks of {products} products");
        ensure(products > 0, || format!("{name} had no locks"))?;
    }
    let split: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT id FROM sales GROUP BY id HAVING count(DISTINCT cluster) > 1)",
    )
    .fetch_one(&db)
    .await?;
    ensure(split == 0, || format!("{split} products had locks on both clusters"))
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
