//! A lock in a SQLite file that nobody else wants: acquire, an empty body, release. The floor is an insert and a delete by the same
//! client, which wait for the disk as little as dlock's do.

use std::time::{Duration, Instant};

use dlock::Registry;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use crate::Failed;
use crate::table::{Contender, Row, median, percentile};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(200);

const TABLE: &str = "\
    CREATE TABLE floor (k TEXT PRIMARY KEY, owner BLOB NOT NULL, token INTEGER NOT NULL, expires INTEGER NOT NULL, \
        boot TEXT NOT NULL, note TEXT NOT NULL) STRICT, WITHOUT ROWID";
const TAKE: &str = "INSERT INTO floor VALUES (?1, ?2, 1, 30000000, 'boot', 'floor') RETURNING token";
const FREE: &str = "DELETE FROM floor WHERE k = ?1 AND owner = ?2";

/// Of one round: cycles per second, and the medians of both halves of a cycle in µs.
struct Measured {
    cycles: f64,
    acquire: f64,
    release: f64,
}

pub(crate) fn row() -> Result<Row, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let rounds = runtime.block_on(measure())?;
    let mut row = Row {
        name: "sqlite-1".into(),
        about: "Acquire and release in a SQLite file, one task. Neither side waits for the disk at a commit.".into(),
        contenders: Vec::new(),
        aims: Vec::new(),
    };
    for (place, name) in ["insert and delete, raw", "dlock"].into_iter().enumerate() {
        let middle = |pick: fn(&Measured) -> f64| median(rounds.iter().map(|round| pick(&round[place])).collect());
        // Round by round, so that a slow second of the machine hits both sides.
        let beside = |pick: fn(&Measured) -> f64| {
            median(rounds.iter().map(|round| pick(&round[place]) / pick(&round[0])).collect())
        };
        row.contenders.push(Contender {
            name: name.into(),
            figures: vec![
                ("cycles/s", middle(|m| m.cycles)),
                ("p50 of acquire, µs", middle(|m| m.acquire)),
                ("p50 of release, µs", middle(|m| m.release)),
                ("acquire × floor", beside(|m| m.acquire)),
                ("release × floor", beside(|m| m.release)),
            ],
        });
    }
    Ok(row)
}

async fn measure() -> Result<Vec<[Measured; 2]>, Failed> {
    let folder = tempfile::tempdir()?;
    let registry = Registry::new();
    registry.connect("file", &format!("sqlite://{}", folder.path().join("locks.db").display())).await?;
    let options = SqliteConnectOptions::new().filename(folder.path().join("floor.db")).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Normal);
    let mut floor = options.connect().await?;
    sqlx::raw_sql(TABLE).execute(&mut floor).await?;
    let mut rounds = Vec::new();
    // The first round warms both up, and is not counted.
    for round in 0..=ROUNDS {
        let measured = if round % 2 == 0 {
            let raw = raw_cycles(&mut floor).await?;
            [raw, cycles(&registry).await?]
        } else {
            let own = cycles(&registry).await?;
            [raw_cycles(&mut floor).await?, own]
        };
        if round > 0 {
            rounds.push(measured);
        }
    }
    floor.close().await?;
    registry.shutdown(Duration::from_secs(5)).await;
    Ok(rounds)
}

async fn cycles(registry: &Registry) -> Result<Measured, Failed> {
    let mut halves = Halves::new();
    while halves.goes_on() {
        let begun = Instant::now();
        let guard = registry.lock("bench:sqlite").acquire().await?;
        let held = Instant::now();
        guard.release().await?;
        halves.add(begun, held);
    }
    Ok(halves.measured())
}

async fn raw_cycles(floor: &mut SqliteConnection) -> Result<Measured, Failed> {
    let mut halves = Halves::new();
    while halves.goes_on() {
        let owner = fastrand::u128(..).to_be_bytes();
        let begun = Instant::now();
        let taken = sqlx::query(TAKE).bind("floor").bind(&owner[..]).fetch_all(&mut *floor).await?.len();
        let held = Instant::now();
        let freed = sqlx::query(FREE).bind("floor").bind(&owner[..]).execute(&mut *floor).await?.rows_affected();
        halves.add(begun, held);
        if (taken, freed) != (1, 1) {
            return Err("the floor's lock was not free, or not its own".into());
        }
    }
    Ok(halves.measured())
}

/// The times of both halves of each cycle, in ns.
struct Halves {
    start: Instant,
    times: [Vec<u64>; 2],
}

impl Halves {
    fn new() -> Self {
        Self { start: Instant::now(), times: [Vec::new(), Vec::new()] }
    }

    fn goes_on(&self) -> bool {
        self.start.elapsed() < ROUND
    }

    fn add(&mut self, begun: Instant, held: Instant) {
        self.times[0].push((held - begun).as_nanos() as u64);
        self.times[1].push(held.elapsed().as_nanos() as u64);
    }

    fn measured(mut self) -> Measured {
        let wall = self.start.elapsed().as_secs_f64();
        let cycles = self.times[0].len() as f64 / wall;
        let [acquire, release] = self.times.each_mut().map(|times| {
            times.sort_unstable();
            percentile(times, 0.5) as f64 / 1000.0
        });
        Measured { cycles, acquire, release }
    }
}
