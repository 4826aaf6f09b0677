//! A task that is much longer than its ttl, and what becomes of one whose process was paused.
//!
//! `cargo run --example long_task`
//!
//! Nobody knows how long an import takes, and nobody needs to: the ttl says how soon another process may take over from
//! one that is gone, and the lock is renewed for as long as the function runs. Then one importer is frozen (SIGSTOP)
//! beyond its ttl. Another takes over where its progress stands. When the first wakes, it is told that the lock is
//! lost, and a write of it that was already on its way is refused by the fence. The program exits with an error if a
//! part was imported twice, or if the late write passes.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::{Duration, Instant};

use common::{Failure, Job, Stage, database, ensure, say};
use dlock::fenced::sqlite as fenced;
use dlock::{ErrorKind, Fence, distributed_lock};
use sqlx::SqlitePool;

const PARTS: i64 = 40;
const TTL: Duration = Duration::from_secs(2);

/// Imports what of a file is not imported yet. `last` is for the example: it keeps the fence when the lock is lost.
#[distributed_lock(key = "import:<file>", ttl = TTL, wait = "30s", fence = fence)]
async fn import(db: &SqlitePool, file: &str, last: &mut Option<Fence>) -> Result<i64, Failure> {
    *last = Some(fence.clone());
    let done: i64 = sqlx::query_scalar("SELECT count(*) FROM parts WHERE file = ?").bind(file).fetch_one(db).await?;
    for part in done + 1..=PARTS {
        tokio::time::sleep(Duration::from_millis(150)).await;
        // The progress is in the database with the work, so that whoever takes over knows where to go on.
        save(db, &fence, file, part).await?;
        say(format!("part {part}"));
    }
    Ok(PARTS - done)
}

/// Writes a part, unless somebody with a higher token was here.
async fn save(db: &SqlitePool, fence: &Fence, file: &str, part: i64) -> Result<(), Failure> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    fenced::admit(&mut transaction, fence, file).await?;
    let insert = sqlx::query("INSERT INTO parts (file, part, process) VALUES (?, ?, ?)");
    insert.bind(file).bind(part).bind(std::process::id()).execute(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

/// A process that imports one file.
async fn worker(job: &mut Job) -> Result<(), Failure> {
    let (db, file) = (database(&job.folder).await?, job.word::<String>(0)?);
    let mut last = None;
    say("started");
    match import(&db, &file, &mut last).await {
        Ok(parts) => say(format!("imported {parts}")),
        Err(failure) if kind(&failure).is_some_and(|kind| matches!(kind, ErrorKind::Lost(_))) => {
            say(format!("lost {failure}"));
            // The function was stopped at an `.await`. But no lock can call back what had left before the pause.
            match save(&db, &last.ok_or("no fence")?, &file, PARTS + 1).await {
                Err(late) if kind(&late).is_some_and(|kind| matches!(kind, ErrorKind::FenceStale { .. })) => {
                    say(format!("refused {late}"));
                }
                passed => return Err(format!("the late write: {passed:?}").into()),
            }
        }
        Err(failure) => return Err(failure),
    }
    Ok(())
}

fn kind(failure: &Failure) -> Option<&ErrorKind> {
    failure.downcast_ref().map(dlock::Error::kind)
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    fenced::prepare(&mut *db.acquire().await?).await?;
    sqlx::raw_sql("CREATE TABLE parts (file TEXT NOT NULL, part INTEGER NOT NULL, process INTEGER NOT NULL) STRICT")
        .execute(&db)
        .await?;
    // Both at the same time, to be done sooner.
    tokio::try_join!(renewed(stage), paused(stage))?;

    for (file, processes) in [("long.csv", 1), ("paused.csv", 2)] {
        let (parts, different, last, by): (i64, i64, i64, i64) = sqlx::query_as(
            "SELECT count(*), count(DISTINCT part), max(part), count(DISTINCT process) FROM parts WHERE file = ?",
        )
        .bind(file)
        .fetch_one(&db)
        .await?;
        println!("{file}: {parts} parts, {different} of them different, by {by} processes.");
        let good = [parts, different, last, by] == [PARTS, PARTS, PARTS, processes];
        ensure(good, || format!("{file} should have {PARTS} parts by {processes} processes, and the last is {last}"))?;
    }
    Ok(())
}

/// One imports; another waits all the time, and finds nothing left to do.
async fn renewed(stage: &Stage) -> Result<(), Failure> {
    let mut first = stage.start(&[&"long.csv"])?;
    first.hear("part 1").await?;
    let began = Instant::now();
    let mut second = stage.start(&[&"long.csv"])?;
    let done: i64 = first.hear("imported").await?.parse()?;
    let ttls = began.elapsed().as_secs_f64() / TTL.as_secs_f64();
    println!("The import of {done} parts has taken more than {ttls:.1} ttls.");
    let left = second.hear("imported").await?;
    ensure(done == PARTS && left == "0", || format!("the second process has imported {left} parts"))?;
    ensure(ttls > 2.0, || "the import was too short to show anything".into())
}

/// One is paused in the middle; another takes over.
async fn paused(stage: &Stage) -> Result<(), Failure> {
    let mut first = stage.start(&[&"paused.csv"])?;
    first.hear("part 1").await?;
    first.pause().await?;
    let began = Instant::now();
    let mut second = stage.start(&[&"paused.csv"])?;
    second.hear("part").await?;
    println!("An importer is paused; {:.1} s later another goes on.", began.elapsed().as_secs_f64());
    first.resume()?;
    println!("It wakes.\n  told:    {}", first.hear("lost").await?);
    println!("  refused: {}", first.hear("refused").await?);
    second.hear("imported").await?;
    Ok(())
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
