//! A cache without a stampede: whoever finds a page missing or stale, one process rebuilds it.
//!
//! `cargo run --example cache`
//!
//! Three processes with many readers each ask for one page at the same moment. While there is nothing to show, they
//! wait for the page that one of them builds. When the page has become stale, they do not even wait: one rebuilds, the
//! others serve the old page. The program counts the builds and exits with an error if there is more than one for each
//! version.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::Duration;

use common::{Failure, Job, Stage, database, ensure, finish, say, together};
use dlock::distributed_lock;
use futures::future::try_join_all;
use sqlx::SqlitePool;

const PROCESSES: u32 = 3;
const READERS: usize = 50;

/// Gives a page, the fresh one if that needs no waiting; its version stands for it here.
async fn get(db: &SqlitePool, page: &str) -> Result<i64, Failure> {
    loop {
        let old = match look(db, page).await? {
            Some((version, true)) => return Ok(version),
            old => old,
        };
        match (rebuild(db, page).await?, old) {
            (Some(version), _) => return Ok(version),
            // Somebody else is at it, and nobody waits for a new page while there is an old one.
            (None, Some((version, _))) => return Ok(version),
            // There is nothing to show: wait for the page. To wait for the lock would be to queue up for what all of
            // them only want to read. Should the builder die, its ttl ends, and one of these builds.
            (None, None) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// `None`, and at once, while somebody else is at it.
#[distributed_lock(key = "page:<page>", ttl = "30s", wait = "none", on_busy = skip)]
async fn rebuild(db: &SqlitePool, page: &str) -> Result<Option<i64>, Failure> {
    // The second look makes it one build: the page that was missing before may have been built meanwhile.
    match look(db, page).await? {
        Some((version, true)) => Ok(Some(version)),
        _ => build(db, page).await.map(Some),
    }
}

/// The version that is in the cache, and whether it is fresh.
async fn look(db: &SqlitePool, page: &str) -> sqlx::Result<Option<(i64, bool)>> {
    sqlx::query_as("SELECT version, fresh FROM cache WHERE page = ?").bind(page).fetch_optional(db).await
}

/// The expensive query that a stampede would send many times.
async fn build(db: &SqlitePool, page: &str) -> Result<i64, Failure> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    sqlx::query("INSERT INTO builds (page) VALUES (?)").bind(page).execute(db).await?;
    let set = "INSERT INTO cache (page, version, fresh) VALUES (?, 1, TRUE)
               ON CONFLICT (page) DO UPDATE SET version = version + 1, fresh = TRUE RETURNING version";
    Ok(sqlx::query_scalar(set).bind(page).fetch_one(db).await?)
}

/// A process of the service: all of its readers ask at once, when the cache is empty and when the page is stale.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    for _ in 0..2 {
        job.ready().await?;
        let pages = try_join_all((0..READERS).map(|_| get(&db, "home"))).await?;
        let old = pages.iter().filter(|version| **version == 1).count();
        say(format!("served {old} {}", READERS - old));
    }
    Ok(())
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    sqlx::raw_sql(
        "CREATE TABLE cache (page TEXT PRIMARY KEY, version INTEGER NOT NULL, fresh INTEGER NOT NULL) STRICT;
         CREATE TABLE builds (page TEXT NOT NULL) STRICT;",
    )
    .execute(&db)
    .await?;
    let mut workers = stage.start_all(PROCESSES)?;

    together(&mut workers).await?;
    for worker in &mut workers {
        worker.hear("served").await?;
    }
    let builds = count(&db).await?;
    println!("Empty: {PROCESSES} processes with {READERS} readers each, {builds} build.");
    ensure(builds == 1, || format!("the page was built {builds} times, and once would have done"))?;

    sqlx::query("UPDATE cache SET fresh = FALSE").execute(&db).await?;
    together(&mut workers).await?;
    let said = finish(workers).await?.concat();
    let served: Vec<&str> = said.iter().flat_map(|line| line.split(' ').skip(1)).collect();
    let sum =
        |column: usize| served.iter().skip(column).step_by(2).filter_map(|n| n.parse::<usize>().ok()).sum::<usize>();
    let builds = count(&db).await? - builds;
    println!("Stale: {builds} build; {} readers got the old page at once, {} the new one.", sum(0), sum(1));
    ensure(builds == 1, || format!("the page was rebuilt {builds} times"))?;
    ensure(sum(0) + sum(1) == PROCESSES as usize * READERS, || "a reader got nothing".into())
}

async fn count(db: &SqlitePool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM builds").fetch_one(db).await
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
