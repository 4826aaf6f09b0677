//! One key in a SQLite file that everybody wants, for 1 ms each. The floor is the hold and one durable commit.

use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use crate::Failed;
use crate::contended::{self, Lock, ROUND, ROUNDS, Section, Work};
use crate::table::{Row, median};

const FLOOR: &str = "hold and one durable commit, /s";

pub(crate) fn row(processes: usize, tasks: usize) -> Result<Row, Failed> {
    let (mut own, mut limits, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = limit()?;
        let folder = tempfile::tempdir()?;
        let url = format!("sqlite://{}", folder.path().join("locks.db").display());
        let work = Work { lock: Lock::Dlock, processes, tasks, section: Section::Long };
        let measured = contended::measure_at(&url, work, ROUND)?;
        // Taken round by round, so that a slow second of the disk hits both sides.
        let around = f64::midpoint(before, limit()?);
        shares.push(measured.hand_overs / around);
        limits.push(around);
        own.push(measured);
    }
    let mut dlock = contended::contender("dlock", &own);
    let share = median(shares);
    dlock.figures.push((FLOOR, median(limits)));
    dlock.figures.push(("hand-overs × floor", share));
    let mut row = Row {
        name: format!("sqlite-{processes}x{tasks}"),
        about: format!(
            "One key in a SQLite file, {processes} process(es) × {tasks} tasks, 1 ms hold; no passing inside a process. \
             A commit of dlock does not wait for the disk, and that of the floor does."
        ),
        contenders: vec![dlock],
        aims: Vec::new(),
    };
    if processes <= 4 {
        row.aim("at least 0.85 of what hold and one durable commit allow", share, share >= 0.85);
    }
    Ok(row)
}

/// How many hand-overs per second there would be if each took the hold and one durable commit, and nothing else.
fn limit() -> Result<f64, Failed> {
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(folder.path().join("floor.db")).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let mut conn = options.connect().await?;
        sqlx::raw_sql("CREATE TABLE floor (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO floor VALUES (1, 0)")
            .execute(&mut conn)
            .await?;
        let (mut commits, mut holds) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let begun = Instant::now();
            sqlx::query("UPDATE floor SET n = n + 1 WHERE id = 1").execute(&mut conn).await?;
            commits.push(begun.elapsed().as_secs_f64());
            let begun = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            holds.push(begun.elapsed().as_secs_f64());
        }
        conn.close().await?;
        Ok(1.0 / (median(commits) + median(holds)))
    })
}
