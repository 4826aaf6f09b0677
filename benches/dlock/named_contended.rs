//! One named lock that everybody wants: hold it for 1 ms, release, ask again at once. The floor is the lock and unlock calls
//! alone, by the same client, with a session for each task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection, PgConnection};

use crate::Failed;
use crate::contended::{Lock, ROUND, ROUNDS, Section, Work, contender, measure_at};
use crate::sql::{Make, Way, server_of, token_costs};
use crate::table::{Row, median};

pub(crate) fn row(make: Make, tasks: usize) -> Result<Row, Failed> {
    let (server, kind) = (server_of(make, Way::Named)?, make.name());
    let (url, named) = (server.url(), format!("{}?way=named", server.url()));
    let work = Work { lock: Lock::Dlock, processes: 1, tasks, section: Section::Long };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut rounds, mut floors, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    // The first turn makes the tables and warms the server up, and is not counted.
    measure_at(&named, work, ROUND / 4)?;
    for round in 0..ROUNDS {
        let floor = || runtime.block_on(raw(make, &url, tasks));
        let own = || measure_at(&named, work, ROUND);
        let (raw, measured) = if round % 2 == 0 {
            let raw = floor()?;
            (raw, own()?)
        } else {
            let measured = own()?;
            (floor()?, measured)
        };
        // Round by round, so that a slow second of the machine hits both sides.
        shares.push(measured.hand_overs / raw);
        floors.push(raw);
        rounds.push(measured);
    }
    let mut contender = contender("dlock", &rounds);
    contender.figures.push(("lock and unlock, raw, /s", median(floors)));
    contender.figures.push(("share of that", median(shares)));
    let mut row = Row {
        name: format!("named-contended-{tasks}-{kind}"),
        about: format!(
            "One lock by `way=named` on {kind}, {tasks} tasks, 1 ms hold. Beside it the calls of the server alone, without a \
             fencing token: {}, at each hand-over.",
            token_costs(make)
        ),
        contenders: vec![contender],
        aims: Vec::new(),
    };
    let share = row.figure("dlock", "share of that");
    row.aim("at least 0.95 of the raw calls", share, share >= 0.95);
    Ok(row)
}

/// Hand-overs per second of the calls alone.
async fn raw(make: Make, url: &str, tasks: usize) -> Result<f64, Failed> {
    let last = Arc::new(AtomicU64::new(0));
    let mut sessions = Vec::new();
    for _ in 0..tasks {
        sessions.push(match make {
            Make::Postgres => Err(PgConnection::connect(url).await?),
            _ => Ok(MySqlConnection::connect(url).await?),
        });
    }
    let begun = Instant::now();
    let end = begun + ROUND;
    let running: Vec<_> = (1..)
        .zip(sessions)
        .map(|(id, mut session)| {
            let last = last.clone();
            tokio::spawn(async move {
                let mut hand_overs = 0;
                while Instant::now() < end {
                    match &mut session {
                        Ok(conn) => sqlx::raw_sql("SELECT GET_LOCK('floor', 60)").execute(conn).await.map(|_| ())?,
                        Err(conn) => sqlx::raw_sql("SELECT pg_advisory_lock(42)").execute(conn).await.map(|_| ())?,
                    }
                    hand_overs += u64::from(last.swap(id, Ordering::Relaxed) != id);
                    std::thread::sleep(Duration::from_millis(1));
                    match &mut session {
                        Ok(conn) => sqlx::raw_sql("SELECT RELEASE_LOCK('floor')").execute(conn).await.map(|_| ())?,
                        Err(conn) => sqlx::raw_sql("SELECT pg_advisory_unlock(42)").execute(conn).await.map(|_| ())?,
                    }
                }
                Ok::<u64, Failed>(hand_overs)
            })
        })
        .collect();
    let mut hand_overs = 0;
    for task in running {
        hand_overs += task.await??;
    }
    Ok(hand_overs as f64 / begun.elapsed().as_secs_f64())
}
