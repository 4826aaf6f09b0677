//! A leader: one node of several numbers the invoices, until it is paused, killed or told to go.
//!
//! `cargo run --example leader`
//!
//! Three nodes run the same loop, and its body runs on the leader alone. The leader keeps the last number in its memory,
//! so two leaders would give numbers twice. First the leader is paused (SIGSTOP) beyond its ttl: another node leads, and the
//! first one drops its body when it wakes. Then the leader is killed. Then the next one resigns. An observer sees each
//! leader. The program exits with an error if a number was given twice or left out, or if a term has fallen.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::{Duration, Instant};

use common::{Failure, Job, Stage, Worker, database, ensure, finish, say};
use dlock::fenced::sqlite as fenced;
use dlock::{ErrorKind, Fence};
use futures::future::select_all;
use sqlx::SqlitePool;

const NODES: u32 = 3;
const TTL: Duration = Duration::from_secs(2);

/// A node: it leads when it can, and does nothing else.
async fn node(job: &mut Job) -> Result<(), Failure> {
    let db = database(&job.folder).await?;
    let election = dlock::elect("invoices").ttl(TTL).candidate(format!("node-{}", job.word::<u32>(0)?));
    let resigns = election.lead(async |leader| {
        say(format!("leads in term {}", leader.term()));
        tokio::select! {
            // The body's end as the leader is a resignation.
            order = job.order() => order.map(drop),
            failed = number_invoices(&db, leader.term()) => match failed {
                // The leadership is over, and this process has not heard of it yet. It does now.
                Err(stale) if is_stale(&stale) => Err(leader.lost().await.into()),
                failed => failed,
            },
        }
    });
    resigns.await?
}

/// Goes on where the leader before has ended, and keeps the number in memory from then on.
async fn number_invoices(db: &SqlitePool, term: &Fence) -> Result<(), Failure> {
    let mut last: i64 = sqlx::query_scalar("SELECT coalesce(max(number), 0) FROM invoices").fetch_one(db).await?;
    loop {
        last += 1;
        let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
        // Refused if a leader of a later term was here. No lock can call back a write that left before a pause.
        fenced::admit(&mut transaction, term, term.key().as_str()).await?;
        let insert = sqlx::query("INSERT INTO invoices (number, term) VALUES (?, ?)");
        insert.bind(last).bind(i64::try_from(term.get())?).execute(&mut *transaction).await?;
        transaction.commit().await?;
        say(format!("invoice {last}"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_stale(failure: &Failure) -> bool {
    failure.downcast_ref().map(dlock::Error::kind).is_some_and(|kind| matches!(kind, ErrorKind::FenceStale { .. }))
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    fenced::prepare(&mut *db.acquire().await?).await?;
    sqlx::raw_sql("CREATE TABLE invoices (number INTEGER NOT NULL, term INTEGER NOT NULL) STRICT").execute(&db).await?;
    let (seen, mut leaders) = tokio::sync::mpsc::unbounded_channel();
    let observer = tokio::spawn(observe(seen));

    let nodes = stage.start_all(NODES)?;
    if stage.unlocked() {
        all_lead(nodes).await?
    } else {
        one_leads_after_the_other(nodes, &db).await?
    }

    let (invoices, different, highest): (i64, i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT number), coalesce(max(number), 0) FROM invoices")
            .fetch_one(&db)
            .await?;
    println!("{invoices} invoices have {different} different numbers. The highest is {highest}.");
    let good = invoices == different && different == highest;
    ensure(good, || "a number was given twice, or left out".into())?;
    let terms: Vec<i64> = sqlx::query_scalar("SELECT term FROM invoices ORDER BY number").fetch_all(&db).await?;
    ensure(terms.is_sorted(), || "a leader of an earlier term came after one of a later term".into())?;

    observer.abort();
    let mut last = None;
    while let Ok(leader) = leaders.try_recv() {
        println!("  observed: {} in term {:?}", leader.candidate().unwrap_or("?"), leader.term);
        // Redis does not tell the term to observers.
        ensure(leader.term.is_none() || leader.term > last, || "the observed terms do not rise".into())?;
        last = leader.term;
    }
    Ok(())
}

/// The leader is paused, the next one is killed, the next one resigns.
async fn one_leads_after_the_other(mut nodes: Vec<Worker>, db: &SqlitePool) -> Result<(), Failure> {
    let first = next_leader(&mut nodes).await?;
    pause_between_writes(&nodes[first], db).await?;
    let since = Instant::now();
    let paused = nodes.remove(first);
    let second = next_leader(&mut nodes).await?;
    println!("The leader was paused. Another node led {:.1} s later.", since.elapsed().as_secs_f64());
    paused.resume()?;

    nodes.remove(second).kill().await?;
    let since = Instant::now();
    nodes.push(paused);
    let third = next_leader(&mut nodes).await?;
    println!("The leader was killed. Another node led {:.1} s later.", since.elapsed().as_secs_f64());

    let mut resigns = nodes.remove(third);
    resigns.order("resign").await?;
    let since = Instant::now();
    next_leader(&mut nodes).await?;
    println!("The leader resigned. Another node led {:.0} ms later.", since.elapsed().as_secs_f64() * 1000.0);
    resigns.end().await?;
    for mut node in nodes {
        node.order("resign").await?;
        node.end().await?;
    }
    Ok(())
}

/// Pauses a node that writes nothing just now. In the middle of a write it would keep SQLite's lock of the whole file, and the
/// next leader could write nothing either.
async fn pause_between_writes(node: &Worker, db: &SqlitePool) -> Result<(), Failure> {
    let mut conn = db.acquire().await?;
    sqlx::raw_sql("PRAGMA busy_timeout = 0").execute(&mut *conn).await?;
    loop {
        node.pause().await?;
        if sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut *conn).await.is_ok() {
            // It is not for the pool any more.
            return Ok(conn.close().await?);
        }
        node.resume()?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Without the lock: nobody waits for anybody.
async fn all_lead(mut nodes: Vec<Worker>) -> Result<(), Failure> {
    for node in &mut nodes {
        node.hear("leads").await?;
        node.hear("invoice").await?;
    }
    for node in &mut nodes {
        node.order("resign").await?;
    }
    finish(nodes).await.map(drop)
}

/// Tells each leader that a look at the store shows.
async fn observe(seen: tokio::sync::mpsc::UnboundedSender<dlock::SeenLeader>) -> Result<(), Failure> {
    let mut changes = dlock::elect("invoices").poll(Duration::from_millis(100)).observe()?;
    loop {
        if let Some(leader) = changes.changed().await? {
            seen.send(leader)?;
        }
    }
}

/// Waits until one of the nodes says that it leads, and has numbered some invoices.
async fn next_leader(nodes: &mut [Worker]) -> Result<usize, Failure> {
    let (leads, leader, _) = select_all(nodes.iter_mut().map(|node| Box::pin(node.hear("leads")))).await;
    leads?;
    for _ in 0..20 {
        nodes[leader].hear("invoice").await?;
    }
    Ok(leader)
}

fn main() -> std::process::ExitCode {
    common::main(parent, node)
}
