//! One lease row that everybody wants: hold it for 1 ms, release, ask again at once. The floor is the hold and one durable
//! commit on the same disk: one connection gives the row to one owner after another, as a hand-over must.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use tokio::sync::{mpsc, oneshot};

use crate::Failed;
use crate::contended::{Lock, ROUND, ROUNDS, Section, Work, contender, measure_at};
use crate::sql::{Make, Way, server_of};
use crate::table::{Row, median};

pub(crate) fn row(make: Make, processes: usize, tasks: usize) -> Result<Row, Failed> {
    let (server, kind) = (server_of(make, Way::Lease)?, make.name());
    let url = server.url();
    let work = Work { lock: Lock::Dlock, processes, tasks, section: Section::Long };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // As each process has.
    let two_threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut rounds, mut shares, mut limits, mut by_tasks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The first turn makes the tables and warms the server up, and is not counted.
    measure_at(&url, work, ROUND / 4)?;
    for _ in 0..ROUNDS {
        let before = runtime.block_on(cycle(make, &url))?;
        let measured = measure_at(&url, work, ROUND)?;
        let after = runtime.block_on(cycle(make, &url))?;
        by_tasks.push(1.0 / two_threads.block_on(two_threads.spawn(cycle_of_tasks(make, url.clone())))??);
        // Round by round, so that a slow second of the disk hits both sides.
        let (hold, commit) = ((before.0 + after.0) / 2.0, (before.1 + after.1) / 2.0);
        let limit = if processes > 1 && tasks == 1 { 1.0 / (hold + 2.0 * commit) } else { 1.0 / (hold + commit) };
        shares.push(measured.hand_overs / limit);
        limits.push(limit);
        rounds.push(measured);
    }
    let alone = processes > 1 && tasks == 1;
    let commits = if alone { "two durable commits" } else { "one durable commit" };
    let mut contender = contender("dlock", &rounds);
    let limit = if alone { "hold and two commits alone, /s" } else { "hold and one commit alone, /s" };
    contender.figures.push((limit, median(limits)));
    if !alone {
        contender.figures.push(("the same in tasks, /s", median(by_tasks)));
    }
    contender.figures.push(("share of that", median(shares)));
    let name = if processes == 1 { tasks.to_string() } else { format!("{processes}x{tasks}") };
    let mut row = Row {
        name: format!("lease-contended-{name}-{kind}"),
        about: format!(
            "One lease row on {kind}, {processes} process(es) × {tasks} tasks, 1 ms hold. Beside it the hold and {commits} on \
             the same disk."
        ),
        contenders: vec![contender],
        aims: Vec::new(),
    };
    let (share, aim) = (row.figure("dlock", "share of that"), if alone { 0.85 } else { 0.9 });
    row.aim(&format!("at least {aim} of what the hold and {commits} allow"), share, share >= aim);
    let (least, most) = (row.figure("dlock", "least share of a task"), row.figure("dlock", "most share of a task"));
    row.aim("every task within 10 % of its share: least", least, least >= 0.9);
    row.aim("every task within 10 % of its share: most", most, most <= 1.1);
    Ok(row)
}

/// A connection, with the row of the floor.
struct Floor {
    conn: Result<MySqlConnection, PgConnection>,
}

impl Floor {
    async fn connect(make: Make, url: &str) -> Result<Self, Failed> {
        let insert = "INSERT INTO dlock_locks (k, token, expires_us, note, hold) VALUES ('floor', 0, 0, '', '')";
        let mut conn = match make {
            Make::Postgres => Err(PgConnection::connect(url).await?),
            _ => Ok(MySqlConnection::connect(url).await?),
        };
        match &mut conn {
            Ok(conn) => {
                sqlx::query(AssertSqlSafe(format!("{insert} ON DUPLICATE KEY UPDATE hold = ''"))).execute(conn).await?;
            }
            Err(conn) => {
                sqlx::query(AssertSqlSafe(format!("{insert} ON CONFLICT DO NOTHING"))).execute(conn).await?;
            }
        }
        Ok(Self { conn })
    }

    /// Gives the row to another owner.
    async fn pass(&mut self) -> Result<(), Failed> {
        let owner = fastrand::u128(..).to_be_bytes();
        match &mut self.conn {
            Ok(conn) => sqlx::query(PASS).bind(&owner[..]).execute(conn).await.map(drop)?,
            Err(conn) => {
                sqlx::query(AssertSqlSafe(PASS.replace('?', "$1"))).bind(&owner[..]).execute(conn).await.map(drop)?;
            }
        }
        Ok(())
    }
}

const PASS: &str = "UPDATE dlock_locks SET token = token + 1, owner = ?, expires_us = expires_us + 1 WHERE k = 'floor'";
const TURNS: usize = 300;

/// The median seconds of a hold, and of giving a row to another owner.
async fn cycle(make: Make, url: &str) -> Result<(f64, f64), Failed> {
    let mut floor = Floor::connect(make, url).await?;
    let (mut holds, mut commits) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        holds.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        floor.pass().await?;
        commits.push(begun.elapsed().as_secs_f64());
    }
    Ok((median(holds), median(commits)))
}

/// The median seconds of a hold and of giving the row to another owner, where each owner and the connection is a task, as in
/// dlock.
async fn cycle_of_tasks(make: Make, url: String) -> Result<f64, Failed> {
    let mut floor = Floor::connect(make, &url).await?;
    let (ask, mut asked) = mpsc::channel::<oneshot::Sender<Result<(), Failed>>>(1);
    tokio::spawn(async move {
        while let Some(reply) = asked.recv().await {
            let _ = reply.send(floor.pass().await);
        }
    });
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let begun = Instant::now();
        let ask = ask.clone();
        let owner = tokio::spawn(async move {
            std::thread::sleep(Duration::from_millis(1));
            let (reply, replied) = oneshot::channel();
            ask.send(reply).await?;
            replied.await?
        });
        owner.await??;
        turns.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(turns))
}
