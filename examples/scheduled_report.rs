//! Scheduled tasks: every node has the schedule, and each period's run is started once in the whole cluster.
//!
//! `cargo run --example scheduled_report`
//!
//! Three nodes run the same two tasks, one called by `tokio-cron-scheduler`, the other by a plain `interval`. Their
//! clocks are up to 2 s apart, so each run is due on them at three different times: which period it is, the store's
//! clock decides. Meanwhile a node is killed (`kill -9`) in the middle of two daily runs: the one is not run again on
//! that day, the other, which says `rerun = on_crash`, is, but not before the dead node's lease has ended. The program
//! exits with an error if any of this is not so.

#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

mod common;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Failure, Job, Stage, database, ensure, finish, say};
use dlock::{ErrorKind, Outcome, distributed_lock, scheduled_lock};
use sqlx::SqlitePool;
use tokio_cron_scheduler::{Job as CronJob, JobScheduler};

const PERIOD: Duration = Duration::from_secs(4);
const AT_LEAST: Duration = Duration::from_secs(3);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a dead node's tasks stay locked; much longer than a machine that is busy with others pauses.
const TTL: Duration = Duration::from_secs(3);

/// As people who come from ShedLock write it: one node runs it, the others skip, and `at_least` keeps the lock until the
/// slowest clock has had its turn. So it must be longer than clocks differ, and shorter than the period.
#[scheduled_lock(name = "report", at_most = "30s", at_least = AT_LEAST)]
async fn report(db: &SqlitePool, node: u32, called: i64) -> Result<(), Failure> {
    write(db, "report", node, called).await
}

/// The same without a guess about clocks: one start in each period, whoever comes, and whenever.
#[distributed_lock(key = "digest", ttl = "30s", wait = "none", once_per = "4s", on_busy = skip)]
async fn digest(db: &SqlitePool, node: u32, called: i64) -> Result<(), Failure> {
    write(db, "digest", node, called).await
}

/// A daily task that must not be done twice, not even if it was only half done.
#[distributed_lock(key = "settle", ttl = TTL, wait = "none", once_per = "1d")]
async fn settle(fate: Fate) -> Outcome<()> {
    fate.meet("settle").await;
    Outcome::Ran(())
}

/// A daily task that must be done, and may be begun anew: while one node runs it the others wait, to take over if it
/// dies.
#[distributed_lock(key = "bill", ttl = TTL, wait = "10s", once_per = "1d", rerun = on_crash)]
async fn bill(fate: Fate) -> Outcome<()> {
    fate.meet("bill").await;
    Outcome::Ran(())
}

/// The work: it takes its time, and goes into the ledger. The lock was taken between `called` and `started`, both in
/// milliseconds.
async fn write(db: &SqlitePool, task: &str, node: u32, called: i64) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO starts (task, node, called, started) VALUES (?, ?, ?, ?)");
    insert.bind(task).bind(node).bind(called).bind(now_ms()?).execute(db).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}

fn now_ms() -> Result<i64, Failure> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// A node with both schedulers. Its clock is `fast` by some seconds: what is due at 12:00:04 it starts before.
async fn node(job: &mut Job) -> Result<(), Failure> {
    let (db, node, fast): (_, u32, i64) = (database(&job.folder).await?, job.word(1)?, job.word(2)?);
    let period = i64::try_from(PERIOD.as_secs())?;

    let cron = JobScheduler::new().await?;
    let second = (-fast).rem_euclid(period);
    let pool = db.clone();
    cron.add(CronJob::new_async(format!("{second}-59/{period} * * * * *"), move |_, _| {
        let db = pool.clone();
        Box::pin(async move {
            let report = async || report(&db, node, now_ms()?).await;
            if let Err(failure) = report().await {
                say(format!("failed: {failure}"));
            }
        })
    })?)
    .await?;
    cron.start().await?;

    let period = period * 1000;
    let until_due = period - (now_ms()? + fast * 1000).rem_euclid(period);
    let first = tokio::time::Instant::now() + Duration::from_millis(until_due.unsigned_abs());
    let mut due = tokio::time::interval_at(first, PERIOD);
    loop {
        tokio::select! {
            _ = due.tick() => digest(&db, node, now_ms()?).await?,
            end = job.order() => break end.map(drop),
        }
    }
}

/// The fate of a node in the middle of a daily run.
#[derive(Clone, Copy)]
enum Fate {
    Killed,
    Lives,
}

impl Fate {
    async fn meet(self, task: &str) {
        say(format!("in {task}"));
        if matches!(self, Self::Killed) {
            std::future::pending().await
        }
    }
}

/// A node whose schedules come round ten times a second, until a while after the bills were written; each time its daily
/// task is due. Each task has a schedule of its own: the one comes round while the other works.
async fn daily(fate: Fate) -> Result<(), Failure> {
    let settles = async {
        let mut said = String::new();
        loop {
            tell("settle", &settle(fate).await, &mut said);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let bills = async {
        let (mut said, mut done) = (String::new(), None::<Instant>);
        while done.is_none_or(|done| done.elapsed() < 2 * TTL) {
            let outcome = bill(fate).await;
            if matches!(outcome, Outcome::Ran(())) {
                done = Some(Instant::now());
            }
            tell("bill", &outcome, &mut said);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = settles => {}
        () = bills => {}
    }
    Ok(())
}

/// Says how it went, when that is something new.
fn tell(task: &str, outcome: &Outcome<()>, said: &mut String) {
    let new = match outcome {
        Outcome::Ran(()) => format!("{task} ran"),
        Outcome::Busy(error) if *error.kind() == ErrorKind::AlreadyRun => format!("{task} was already run"),
        other => format!("{task}: {other:?}"),
    };
    if *said != new {
        say(&new);
        *said = new;
    }
}

async fn worker(job: &mut Job) -> Result<(), Failure> {
    match job.word::<String>(0)?.as_str() {
        "node" => node(job).await,
        "killed" => daily(Fate::Killed).await,
        _ => daily(Fate::Lives).await,
    }
}

async fn parent(stage: &Stage) -> Result<(), Failure> {
    let db = database(stage.folder()).await?;
    let create = "CREATE TABLE starts (task TEXT, node INTEGER, called INTEGER, started INTEGER) STRICT";
    sqlx::raw_sql(create).execute(&db).await?;
    tokio::try_join!(three_nodes(stage, &db), a_node_dies(stage))?;
    for task in ["report", "digest", "settle", "bill"] {
        // Kept by the store for scheduled tasks and those with `once_per`, for whoever wants to know; in a dashboard, say.
        match dlock::last_success(task).await? {
            Some(run) => println!(
                "{task}: last done {:.1} s ago by process {} on {}, in {} ms",
                run.started.elapsed()?.as_secs_f64(),
                run.note.pid().unwrap_or_default(),
                run.note.host().unwrap_or_default(),
                run.took.as_millis()
            ),
            None => println!("{task}: never done"),
        }
    }
    for task in ["report", "digest", "bill"] {
        ensure(dlock::last_success(task).await?.is_some(), || format!("nothing is kept of {task}"))?;
    }
    ensure(dlock::last_success("settle").await?.is_none(), || "a killed run counts as a success".into())
}

/// A start in the ledger, by task, node, and the times in milliseconds between which its lock was taken.
type Start = (String, u32, i64, i64);

/// Three nodes whose clocks differ, until the digest has been started in a second period.
async fn three_nodes(stage: &Stage, db: &SqlitePool) -> Result<(), Failure> {
    let mut nodes = Vec::new();
    for (node, fast) in [(1, -1), (2, 0), (3, 1)] {
        nodes.push(stage.start(&[&"node", &node, &fast])?);
    }
    let digests = "SELECT count(*) FROM starts WHERE task = 'digest'";
    while sqlx::query_scalar::<_, i64>(digests).fetch_one(db).await? < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The slowest clock has its turn too, and must not start the same period once more.
    tokio::time::sleep(PERIOD * 3 / 4).await;
    for node in &mut nodes {
        node.order("end").await?;
    }
    let said = finish(nodes).await?.concat();
    ensure(said.is_empty(), || format!("the nodes said {said:?}"))?;

    let starts: Vec<Start> =
        sqlx::query_as("SELECT task, node, called, started FROM starts ORDER BY started").fetch_all(db).await?;
    let period = i64::try_from(PERIOD.as_millis())?;
    for (task, node, _, started) in &starts {
        let off = started - nearest(*started, period) * period;
        println!("{task}: started by node {node}, {off:+} ms from when it is due");
    }
    let of = |task| starts.iter().filter(move |start| start.0 == task);
    ensure(of("report").count() > 0, || "report was never started".into())?;
    let kept = i64::try_from(AT_LEAST.as_millis())?;
    for ((_, _, called, _), (_, _, _, next)) in of("report").zip(of("report").skip(1)) {
        ensure(next - called >= kept, || format!("report was started again {} ms after its call", next - called))?;
    }
    let mut last = i64::MIN;
    for (_, _, called, started) in of("digest") {
        // On a machine that is late, the lock may be taken in one period and the work be begun in the next.
        let number = nearest(*called, period).max(last + 1);
        ensure(number <= nearest(*started, period), || format!("digest was started twice in period {last}"))?;
        last = number;
    }
    Ok(())
}

/// The number of the period that is due nearest to this time: one ends in the middle between two.
const fn nearest(ms: i64, period: i64) -> i64 {
    (ms + period / 2).div_euclid(period)
}

/// A node is killed in the middle of two daily runs, while another waits for them.
async fn a_node_dies(stage: &Stage) -> Result<(), Failure> {
    // A new day would be a new run: not in the middle of this.
    let day = i64::try_from(DAY.as_millis())?;
    let left = day - (now_ms()? + day / 2).rem_euclid(day);
    if left < 5_000 {
        tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
    }
    let mut killed = stage.start(&[&"killed"])?;
    let (mut settles, mut bills) = (false, false);
    while !(settles && bills) {
        let line = killed.line().await?;
        // If the answer to a start was lost, the run counts as begun.
        settles |= line == "in settle" || line == "settle was already run";
        bills |= line == "in bill";
    }
    let mut heir = stage.start(&[&"lives"])?;
    killed.kill().await?;
    let dead = Instant::now();
    heir.hear("in bill").await?;
    let took = dead.elapsed().as_secs_f64();
    println!("A node was killed in two daily runs; {took:.1} s later another writes the bills.");
    let said = heir.end().await?;
    println!("  Then it says: {}", said.join(", "));
    let again = said.iter().any(|line| line.starts_with("in") || line == "settle ran");
    ensure(!again, || "and that was too much".into())?;
    ensure(said.last().is_some_and(|line| line == "bill was already run"), || "the bills were not kept".into())
}

fn main() -> std::process::ExitCode {
    common::main(parent, worker)
}
