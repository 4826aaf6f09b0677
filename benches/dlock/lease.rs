//! Lease rows that nobody else wants: acquire, an empty body, release; each task has its own key. The floor is the two
//! statements alone, by the same client over as many connections.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::{Instance, MariaDb, MySql, Postgres};
use sqlx::{Connection, MySqlConnection, PgConnection};
use tokio::sync::Mutex;

use crate::Failed;
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-mariadb")]
async fn on_mariadb(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-mysql")]
async fn on_mysql(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-postgres")]
async fn on_postgres(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

/// A server with full durability, as each of them has by default.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Make {
    MariaDb,
    MySql,
    Postgres,
}

impl Make {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
        }
    }
}

const CONTENDERS: [&str; 2] = ["the two statements, raw", "dlock"];
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);
/// As many as dlock opens for one runtime by default.
const CONNECTIONS: usize = 8;

pub(crate) fn row(make: Make, tasks: usize) -> Result<Row, Failed> {
    let name = make.name();
    let server = server_of(make)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (backend, url) = (format!("bench-{name}"), server.url());
    if let Err(error) = runtime.block_on(Registry::global().connect(&backend, &url))
        && *error.kind() != dlock::ErrorKind::AlreadyRegistered
    {
        return Err(error.into());
    }
    let floor = Arc::new(runtime.block_on(Floor::connect(make, &url))?);
    let mut rounds: Vec<Vec<(f64, f64, f64)>> = vec![Vec::new(); CONTENDERS.len()];
    // The first turns warm connections and rows up, and are not counted.
    for round in 0..=ROUNDS {
        let order: [usize; 2] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for contender in order {
            let measured = runtime.block_on(measure(make, contender, tasks, &floor))?;
            if round > 0 {
                rounds[contender].push(measured);
            }
        }
    }
    let mut row = Row {
        name: format!("lease-{tasks}-{name}"),
        about: format!(
            "Acquire and release by lease rows on {name}, {tasks} task(s) with a key each, {CONNECTIONS} connections."
        ),
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    for (name, own) in CONTENDERS.iter().zip(&rounds) {
        let middle = |pick: fn(&(f64, f64, f64)) -> f64| median(own.iter().map(pick).collect());
        // Round by round, so that a slow second of the disk hits both sides.
        let ratio = median(own.iter().zip(&rounds[0]).map(|(own, floor)| floor.0 / own.0).collect());
        row.contenders.push(Contender {
            name: (*name).to_owned(),
            figures: vec![
                ("cycles/s", middle(|m| m.0)),
                ("p50 µs", middle(|m| m.1)),
                ("p99 µs", middle(|m| m.2)),
                ("time of a cycle × floor", ratio),
            ],
        });
    }
    let ratio = row.figure("dlock", "time of a cycle × floor");
    row.aim("at most 1.10 × the time of the raw statements", ratio, ratio <= 1.10);
    if tasks == 16 {
        let rate = row.figure("dlock", "cycles/s");
        row.aim("over 1000 cycles per second", rate, rate > 1000.0);
    }
    Ok(row)
}

/// One for both rows of a server, since the registry keeps to its address.
pub(crate) fn server_of(make: Make) -> Result<&'static Instance, Failed> {
    static SERVERS: [OnceLock<Instance>; 3] = [const { OnceLock::new() }; 3];
    let kept = &SERVERS[make as usize];
    if kept.get().is_none() {
        let _ = kept.set(match make {
            Make::MariaDb => Instance::start(MariaDb::default())?,
            Make::MySql => Instance::start(MySql::default())?,
            Make::Postgres => Instance::start(Postgres::default())?,
        });
    }
    Ok(kept.get().ok_or("no server")?)
}

/// Cycles per second, and the median and 99th percentile of a cycle in µs.
async fn measure(make: Make, contender: usize, tasks: usize, floor: &Arc<Floor>) -> Result<(f64, f64, f64), Failed> {
    let start = Instant::now();
    let end = start + ROUND;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let floor = floor.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let begun = Instant::now();
                    if begun >= end {
                        return Ok::<_, Failed>(times);
                    }
                    match (contender, make) {
                        (0, _) => floor.cycle(task).await?,
                        (_, Make::MariaDb) => on_mariadb(task).await?,
                        (_, Make::MySql) => on_mysql(task).await?,
                        (_, Make::Postgres) => on_postgres(task).await?,
                    }
                    times.push(begun.elapsed().as_nanos() as u64);
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await??);
    }
    let wall = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let micros = |share| percentile(&times, share) as f64 / 1000.0;
    Ok((times.len() as f64 / wall, micros(0.5), micros(0.99)))
}

/// Connections of the client, and rows in dlock's own table.
struct Floor(Vec<Mutex<Conn>>);

enum Conn {
    MySql(MySqlConnection),
    Postgres(PgConnection),
}

const MYSQL: [&str; 2] = [
    "UPDATE dlock_locks SET token = LAST_INSERT_ID(token + 1), owner = ?, note = 'floor', hold = 'floor', \
     expires_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 30000000 \
     WHERE k = ? AND (owner IS NULL OR expires_us <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))",
    "UPDATE dlock_locks SET owner = NULL, expires_us = 0 WHERE owner = ? AND k = ?",
];

const POSTGRES: [&str; 2] = [
    "UPDATE dlock_locks SET token = token + 1, owner = $1, note = 'floor', hold = 'floor', \
     expires_us = (extract(epoch FROM statement_timestamp()) * 1000000)::bigint + 30000000 \
     WHERE k = $2 AND (owner IS NULL OR expires_us <= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint) \
     RETURNING token",
    "UPDATE dlock_locks SET owner = NULL, expires_us = 0 WHERE owner = $1 AND k = $2 RETURNING token",
];

impl Floor {
    async fn connect(make: Make, url: &str) -> Result<Self, Failed> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Mutex::new(match make {
                Make::Postgres => Conn::Postgres(PgConnection::connect(url).await?),
                _ => Conn::MySql(MySqlConnection::connect(url).await?),
            }));
        }
        let floor = Self(connections);
        for task in 0..64 {
            let key = key_of(task);
            let insert = "INSERT INTO dlock_locks (k, token, expires_us, note, hold) VALUES";
            match &mut *floor.of(task).lock().await {
                Conn::MySql(conn) => {
                    let insert =
                        sqlx::AssertSqlSafe(format!("{insert} (?, 0, 0, '', '') ON DUPLICATE KEY UPDATE hold = ''"));
                    sqlx::query(insert).bind(key.as_bytes()).execute(conn).await?;
                }
                Conn::Postgres(conn) => {
                    let insert = sqlx::AssertSqlSafe(format!("{insert} ($1, 0, 0, '', '') ON CONFLICT DO NOTHING"));
                    sqlx::query(insert).bind(key).execute(conn).await?;
                }
            }
        }
        Ok(floor)
    }

    fn of(&self, task: usize) -> &Mutex<Conn> {
        &self.0[task % self.0.len()]
    }

    async fn cycle(&self, task: usize) -> Result<(), Failed> {
        let (key, owner) = (key_of(task), fastrand::u128(..).to_be_bytes());
        for step in 0..2 {
            let changed = match &mut *self.of(task).lock().await {
                Conn::MySql(conn) => {
                    let query = sqlx::query(MYSQL[step]).bind(&owner[..]).bind(key.as_bytes());
                    query.execute(conn).await?.rows_affected()
                }
                Conn::Postgres(conn) => {
                    let query = sqlx::query(POSTGRES[step]).bind(&owner[..]).bind(&key);
                    query.fetch_all(conn).await?.len() as u64
                }
            };
            if changed != 1 {
                return Err("the floor's lock was not free, or not its own".into());
            }
        }
        Ok(())
    }
}

fn key_of(task: usize) -> String {
    format!("floor:{task}")
}
