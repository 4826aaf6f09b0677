//! One lease row that 20 processes want: how many connections they have to the server, all together, at the height of a run.
//! Each process may have `max_connections` for its pool and as many for wait queues. This row says how many it needs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::servers::{Instance, MariaDb, MySql, Postgres};
use sqlx::{Connection, MySqlConnection, PgConnection, Row as _};

use crate::Failed;
use crate::contended::{Lock, ROUND, ROUNDS, Section, Work, contender, measure_at};
use crate::sql::Make;
use crate::table::Row;

const PROCESSES: usize = 20;
/// The most that a process with one task needs: one in the pool, one in the wait queue, and two for renewals. The store opens one
/// of the last two when it is opened.
const NEEDED: f64 = 4.0;
const EVERY: Duration = Duration::from_millis(10);
/// How long the server may take to notice that the processes of the last round have gone.
const GONE: Duration = Duration::from_secs(20);

pub(crate) fn row(make: Make) -> Result<Row, Failed> {
    // A server of its own: stores of other rows keep connections to theirs.
    let server = match make {
        Make::MariaDb => Instance::start(MariaDb::default())?,
        Make::MySql => Instance::start(MySql::default())?,
        Make::Postgres => Instance::start(Postgres::default())?,
    };
    let (url, kind) = (server.url(), make.name());
    let work = Work { lock: Lock::Dlock, processes: PROCESSES, tasks: 1, section: Section::Long };
    let (mut rounds, mut height) = (Vec::new(), 0);
    // The first turn makes the tables and warms the server up, and is not counted.
    measure_at(&url, work, ROUND / 4)?;
    for _ in 0..ROUNDS {
        let (measured, connections) = counted(make, &url, || measure_at(&url, work, ROUND))?;
        rounds.push(measured);
        height = height.max(connections);
    }
    let (height, processes) = (height as f64, PROCESSES as f64);
    let mut contender = contender("dlock", &rounds);
    contender.figures.push(("connections at the height", height));
    contender.figures.push(("connections for each process", height / processes));
    let mut row = Row {
        name: format!("lease-connections-{PROCESSES}x1-{kind}"),
        about: format!(
            "One lease row on {kind}, {PROCESSES} processes × 1 task, 1 ms hold, and the connections of all processes together, as \
             the server counts them every {} ms: those in the pools, in the wait queue, and for renewals.",
            EVERY.as_millis()
        ),
        contenders: vec![contender],
        aims: Vec::new(),
    };
    let aim = "at most 4 connections for each process: one in the pool, one in the wait queue, two for renewals";
    row.aim(aim, height / processes, height <= NEEDED * processes);
    Ok(row)
}

/// Does the work, and returns the most connections that the server had meanwhile.
fn counted<T>(make: Make, url: &str, work: impl FnOnce() -> Result<T, Failed>) -> Result<(T, u64), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut counter = runtime.block_on(Counter::connect(make, url))?;
    let end = Instant::now() + GONE;
    while runtime.block_on(counter.others())? > 0 {
        if Instant::now() > end {
            return Err("the processes of the last round are still connected".into());
        }
        thread::sleep(EVERY);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(runtime.block_on(counter.others())?);
                thread::sleep(EVERY);
            }
            Ok::<_, Failed>(most)
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let most = counting.join().map_err(|_| "the counter panicked")??;
        Ok((done?, most))
    })
}

/// A connection that counts the others.
enum Counter {
    MySql(MySqlConnection),
    Postgres(PgConnection),
}

impl Counter {
    async fn connect(make: Make, url: &str) -> Result<Self, Failed> {
        Ok(match make {
            Make::Postgres => Self::Postgres(PgConnection::connect(url).await?),
            Make::MariaDb | Make::MySql => Self::MySql(MySqlConnection::connect(url).await?),
        })
    }

    async fn others(&mut self) -> Result<u64, Failed> {
        match self {
            Self::MySql(conn) => {
                // MySQL refuses the list of processes while one of them has bytes in its statement.
                let row = sqlx::raw_sql("SHOW GLOBAL STATUS LIKE 'Threads_connected'").fetch_one(conn).await?;
                Ok(row.try_get::<String, _>(1)?.parse::<u64>()?.saturating_sub(1))
            }
            Self::Postgres(conn) => {
                let sql = "SELECT count(*) FROM pg_stat_activity \
                           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                Ok(u64::try_from(sqlx::raw_sql(sql).fetch_one(conn).await?.try_get::<i64, _>(0)?)?)
            }
        }
    }
}
