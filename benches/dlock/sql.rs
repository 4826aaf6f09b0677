//! Locks in SQL servers that nobody else wants: acquire, an empty body, release; each task has its own key. The floor is the
//! statements alone, by the same client over as many connections.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::{Instance, MariaDb, MySql, Postgres};
use sqlx::{Connection, MySqlConnection, PgConnection, Row as _};
use tokio::sync::Mutex;

use crate::Failed;
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-mariadb")]
async fn on_mariadb(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "named:<id>", ttl = "30s", backend = "bench-mariadb-named")]
async fn named_on_mariadb(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-mysql")]
async fn on_mysql(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "named:<id>", ttl = "30s", backend = "bench-mysql-named")]
async fn named_on_mysql(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-postgres")]
async fn on_postgres(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "named:<id>", ttl = "30s", backend = "bench-postgres-named")]
async fn named_on_postgres(id: usize) -> Result<(), dlock::Error> {
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

/// The way of locking.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Lease,
    Named,
}

impl Way {
    /// The last one is dlock.
    const fn contenders(self) -> &'static [&'static str] {
        match self {
            Self::Lease => &["the two statements, raw", "dlock"],
            Self::Named => &["lock and unlock, raw", "the same, and the row of the token", "dlock"],
        }
    }

    /// The most that a cycle of dlock shall take, beside the floor.
    const fn aim(self) -> f64 {
        match self {
            Self::Lease => 1.10,
            Self::Named => 1.15,
        }
    }
}

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);
/// As many as dlock opens for one runtime by default.
const CONNECTIONS: usize = 8;

pub(crate) fn row(make: Make, way: Way, tasks: usize) -> Result<Row, Failed> {
    let name = make.name();
    let server = server_of(make, way)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let url = server.url();
    let (backend, opened) = match way {
        Way::Lease => (format!("bench-{name}"), url.clone()),
        Way::Named => (format!("bench-{name}-named"), format!("{url}?way=named")),
    };
    if let Err(error) = runtime.block_on(Registry::global().connect(&backend, &opened))
        && *error.kind() != dlock::ErrorKind::AlreadyRegistered
    {
        return Err(error.into());
    }
    let floor = Arc::new(runtime.block_on(Floor::connect(make, way, &url))?);
    let contenders = way.contenders();
    let mut rounds: Vec<Vec<(f64, f64, f64)>> = vec![Vec::new(); contenders.len()];
    // The first turns warm connections and rows up, and are not counted.
    for round in 0..=ROUNDS {
        let mut order: Vec<_> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let measured = runtime.block_on(measure((make, way), contender, tasks, &floor))?;
            if round > 0 {
                rounds[contender].push(measured);
            }
        }
    }
    let mut row = Row {
        name: format!("{}-{tasks}-{name}", if way == Way::Lease { "lease" } else { "named" }),
        about: match way {
            Way::Lease => format!(
                "Acquire and release by lease rows on {name}, {tasks} task(s) with a key each, {CONNECTIONS} connections."
            ),
            Way::Named => {
                format!(
                    "Acquire and release by `way=named` on {name}, {tasks} task(s) with a key each, at most 8 sessions."
                )
            }
        },
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    for (name, own) in contenders.iter().zip(&rounds) {
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
    let most = way.aim();
    row.aim(&format!("at most {most:.2} × the time of the raw statements"), ratio, ratio <= most);
    if way == Way::Lease && tasks == 16 {
        let rate = row.figure("dlock", "cycles/s");
        row.aim("over 1000 cycles per second", rate, rate > 1000.0);
    }
    Ok(row)
}

/// One for all rows of a way, since the registry keeps to its address, and a namespace is locked in one way.
pub(crate) fn server_of(make: Make, way: Way) -> Result<&'static Instance, Failed> {
    static SERVERS: [OnceLock<Instance>; 6] = [const { OnceLock::new() }; 6];
    let kept = &SERVERS[2 * make as usize + way as usize];
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
async fn measure(
    (make, way): (Make, Way),
    contender: usize,
    tasks: usize,
    floor: &Arc<Floor>,
) -> Result<(f64, f64, f64), Failed> {
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
                    match (way, make) {
                        _ if contender + 1 < way.contenders().len() => floor.cycle(way, contender, task).await?,
                        (Way::Lease, Make::MariaDb) => on_mariadb(task).await?,
                        (Way::Lease, Make::MySql) => on_mysql(task).await?,
                        (Way::Lease, Make::Postgres) => on_postgres(task).await?,
                        (Way::Named, Make::MariaDb) => named_on_mariadb(task).await?,
                        (Way::Named, Make::MySql) => named_on_mysql(task).await?,
                        (Way::Named, Make::Postgres) => named_on_postgres(task).await?,
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

/// The middle one draws a token; its bytes are the key.
const MYSQL_NAMED: [&str; 3] = [
    "SELECT CAST(GET_LOCK(?, 0) AS SIGNED)",
    "UPDATE dlock_named SET token = LAST_INSERT_ID(token + 1), note = 'floor' WHERE k = ?",
    "SELECT CAST(RELEASE_LOCK(?) AS SIGNED)",
];

const POSTGRES_NAMED: [&str; 3] = [
    "SELECT pg_try_advisory_lock(hashtextextended($1, 0))",
    "UPDATE dlock_named SET token = token + 1, note = 'floor' WHERE k = $1 RETURNING token",
    "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
];

impl Floor {
    async fn connect(make: Make, way: Way, url: &str) -> Result<Self, Failed> {
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
            let (insert, zeros) = match way {
                Way::Lease => ("INSERT INTO dlock_locks (k, token, expires_us, note, hold) VALUES", "0, 0, '', ''"),
                Way::Named => {
                    ("INSERT INTO dlock_named (k, token, session, lock_id, note, hold) VALUES", "0, 0, '', '', ''")
                }
            };
            match &mut *floor.of(task).lock().await {
                Conn::MySql(conn) => {
                    let insert =
                        sqlx::AssertSqlSafe(format!("{insert} (?, {zeros}) ON DUPLICATE KEY UPDATE hold = ''"));
                    sqlx::query(insert).bind(key.as_bytes()).execute(conn).await?;
                }
                Conn::Postgres(conn) => {
                    let insert = sqlx::AssertSqlSafe(format!("{insert} ($1, {zeros}) ON CONFLICT DO NOTHING"));
                    sqlx::query(insert).bind(key).execute(conn).await?;
                }
            }
        }
        Ok(floor)
    }

    fn of(&self, task: usize) -> &Mutex<Conn> {
        &self.0[task % self.0.len()]
    }

    async fn cycle(&self, way: Way, contender: usize, task: usize) -> Result<(), Failed> {
        match way {
            Way::Lease => self.lease_cycle(task).await,
            Way::Named => self.named_cycle(contender > 0, task).await,
        }
    }

    async fn named_cycle(&self, draws: bool, task: usize) -> Result<(), Failed> {
        let key = key_of(task);
        // One task at a time has the connection, as a session that is shared would have.
        let mut conn = self.of(task).lock().await;
        for step in (0..3).filter(|step| draws || *step != 1) {
            let is_done = match &mut *conn {
                Conn::MySql(conn) if step == 1 => {
                    sqlx::query(MYSQL_NAMED[1]).bind(key.as_bytes()).execute(conn).await?.rows_affected() == 1
                }
                Conn::MySql(conn) => {
                    let row = sqlx::query(MYSQL_NAMED[step]).bind(&key).fetch_one(conn).await?;
                    row.try_get_unchecked::<Option<i64>, _>(0)? == Some(1)
                }
                Conn::Postgres(conn) if step == 1 => {
                    sqlx::query(POSTGRES_NAMED[1]).bind(&key).fetch_all(conn).await?.len() == 1
                }
                Conn::Postgres(conn) => {
                    sqlx::query(POSTGRES_NAMED[step]).bind(&key).fetch_one(conn).await?.try_get(0)?
                }
            };
            if !is_done {
                return Err("the floor's lock was not free, or not its own".into());
            }
        }
        Ok(())
    }

    async fn lease_cycle(&self, task: usize) -> Result<(), Failed> {
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
