//! Locks in SQL servers that nobody else wants: acquire, an empty body, release; each task has its own key. The floor is the
//! statements alone, by the same client over as many connections ([`sql_floor`](crate::sql_floor)).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};
use dlock_testkit::servers::{Instance, MariaDb, MySql, Postgres};

use crate::Failed;
use crate::sql_floor::Floor;
use crate::table::{Contender, Row, median, percentile};
use crate::used::Used;

#[distributed_lock(key = "lease:<id>", ttl = "30s", backend = "bench-mariadb")]
async fn on_mariadb(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "named:<id>", ttl = "30s", backend = "bench-mariadb-named")]
async fn named_on_mariadb(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

#[distributed_lock(key = "row:<id>", ttl = "30s", backend = "bench-mariadb-row")]
async fn row_on_mariadb(id: usize) -> Result<(), dlock::Error> {
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

#[distributed_lock(key = "row:<id>", ttl = "30s", backend = "bench-mysql-row")]
async fn row_on_mysql(id: usize) -> Result<(), dlock::Error> {
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

#[distributed_lock(key = "row:<id>", ttl = "30s", backend = "bench-postgres-row")]
async fn row_on_postgres(id: usize) -> Result<(), dlock::Error> {
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
    Row,
}

impl Way {
    /// The last one is dlock.
    const fn contenders(self) -> &'static [&'static str] {
        match self {
            Self::Lease => &["the two statements, raw", "the same, in tasks", "dlock"],
            Self::Named => &["lock and unlock, raw", "the same, and the row of the token", "dlock"],
            Self::Row => &["the row's transaction and the record's, raw", "the same, on another thread", "dlock"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Named => "named",
            Self::Row => "row",
        }
    }

    /// The most that a cycle of dlock shall take, beside the floor.
    const fn aim(self) -> f64 {
        match self {
            Self::Lease => 1.10,
            Self::Named | Self::Row => 1.15,
        }
    }
}

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);
/// As many as dlock opens for one runtime by default.
pub(crate) const CONNECTIONS: usize = 8;

pub(crate) fn row(make: Make, way: Way, tasks: usize) -> Result<Row, Failed> {
    let name = make.name();
    let server = server_of(make, way)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let url = server.url();
    let (backend, opened) = match way {
        Way::Lease => (format!("bench-{name}"), url.clone()),
        Way::Named | Way::Row => (format!("bench-{name}-{}", way.name()), format!("{url}?way={}", way.name())),
    };
    if let Err(error) = runtime.block_on(Registry::global().connect(&backend, &opened))
        && *error.kind() != dlock::ErrorKind::AlreadyRegistered
    {
        return Err(error.into());
    }
    let here = runtime.block_on(Floor::connect(make, way, &url))?;
    // As dlock has the sessions of row locks.
    let aside = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let driven = match way {
        Way::Row => aside.block_on(Floor::connect(make, way, &url))?,
        Way::Lease | Way::Named => here.clone(),
    };
    let floors = Floors { here, driven };
    let contenders = way.contenders();
    let mut rounds: Vec<Vec<[f64; 5]>> = vec![Vec::new(); contenders.len()];
    // The first turns warm connections and rows up, and are not counted.
    for round in 0..=ROUNDS {
        let mut order: Vec<_> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let measured = runtime.block_on(measure((make, way), contender, tasks, &floors))?;
            if round > 0 {
                rounds[contender].push(measured);
            }
        }
    }
    let mut row = Row {
        name: format!("{}-{tasks}-{name}", way.name()),
        about: match way {
            Way::Lease => format!(
                "Acquire and release by lease rows on {name}, {tasks} task(s) with a key each, {CONNECTIONS} connections. dlock's \
                 connections are driven by tasks, not by callers."
            ),
            Way::Named => format!(
                "Acquire and release by `way=named` on {name}, {tasks} task(s) with a key each, at most 8 sessions. The raw calls \
                 give no fencing token; {}.",
                token_costs(make)
            ),
            Way::Row => format!(
                "Acquire and release by `way=row` on {name}, {tasks} task(s) with a key each, and no work in the transaction. \
                 dlock's sessions are driven by a thread of its own."
            ),
        },
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    for (name, own) in contenders.iter().zip(&rounds) {
        // Round by round, so that a slow second of the disk hits both sides.
        let ratio = median(own.iter().zip(&rounds[0]).map(|(own, floor)| floor[0] / own[0]).collect());
        row.contenders.push(Contender::of_cycles(name, own, ("time of a cycle × floor", ratio)));
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

/// The price of a fencing token by `way=named`.
pub(crate) fn token_costs(make: Make) -> &'static str {
    match make {
        Make::Postgres => "it comes from a sequence, with an unlogged row",
        Make::MariaDb | Make::MySql => "its row is a durable commit",
    }
}

/// One for all rows of a way, since the registry keeps to its address, and a namespace is locked in one way.
pub(crate) fn server_of(make: Make, way: Way) -> Result<&'static Instance, Failed> {
    static SERVERS: [OnceLock<Instance>; 9] = [const { OnceLock::new() }; 9];
    let kept = &SERVERS[3 * make as usize + way as usize];
    if kept.get().is_none() {
        let _ = kept.set(match make {
            Make::MariaDb => Instance::start(MariaDb::default())?,
            Make::MySql => Instance::start(MySql::default())?,
            Make::Postgres => Instance::start(Postgres::default())?,
        });
    }
    Ok(kept.get().ok_or("no server")?)
}

/// The raw statements, driven by their callers or by tasks.
#[derive(Clone)]
struct Floors {
    here: Floor,
    driven: Floor,
}

impl Floors {
    async fn cycle(&self, way: Way, contender: usize, task: usize) -> Result<(), Failed> {
        match (way, contender) {
            (Way::Named, _) | (_, 0) => self.here.cycle(way, contender, task).await,
            _ => self.driven.driven_cycle(way, task).await,
        }
    }
}

/// Cycles per second, the median and 99th percentile of a cycle in µs, and what each costs the client.
async fn measure(
    (make, way): (Make, Way),
    contender: usize,
    tasks: usize,
    floors: &Floors,
) -> Result<[f64; 5], Failed> {
    let (start, before) = (Instant::now(), Used::now());
    let end = start + ROUND;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let floors = floors.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                loop {
                    let begun = Instant::now();
                    if begun >= end {
                        return Ok::<_, Failed>(times);
                    }
                    match (way, make) {
                        _ if contender + 1 < way.contenders().len() => floors.cycle(way, contender, task).await?,
                        (Way::Lease, Make::MariaDb) => on_mariadb(task).await?,
                        (Way::Lease, Make::MySql) => on_mysql(task).await?,
                        (Way::Lease, Make::Postgres) => on_postgres(task).await?,
                        (Way::Named, Make::MariaDb) => named_on_mariadb(task).await?,
                        (Way::Named, Make::MySql) => named_on_mysql(task).await?,
                        (Way::Named, Make::Postgres) => named_on_postgres(task).await?,
                        (Way::Row, Make::MariaDb) => row_on_mariadb(task).await?,
                        (Way::Row, Make::MySql) => row_on_mysql(task).await?,
                        (Way::Row, Make::Postgres) => row_on_postgres(task).await?,
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
    let [processor, sleeps] = Used::since_per_cycle(&before, times.len());
    Ok([times.len() as f64 / wall, micros(0.5), micros(0.99), processor, sleeps])
}
