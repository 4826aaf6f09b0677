//! 50 askers on one lease row whose holder has died, all at the same time: one of them may win, and nobody may hear of a deadlock.
//! Beside it what articles write: delete the expired row, then insert one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::mysql::lease;
use dlock::{Clock, Key, LockKey};
use dlock_contract::{Attempt, Backend, Claim, Queue};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tokio::sync::{Barrier, Mutex};

use crate::Failed;
use crate::sql::{Make, Way, server_of};
use crate::table::{Contender, Row, median};

const ASKERS: usize = 50;
const ROUNDS: usize = 20;
const TTL: Duration = Duration::from_secs(600);

/// The result of one round.
struct Round {
    winners: usize,
    /// The deadlocks and lock timeouts that askers heard of.
    surfaced: usize,
    millis: f64,
}

/// Whether an asker has won; `None` after an error 1213 or 1205.
type Answer = Result<Option<bool>, Failed>;

pub(crate) fn row(make: Make) -> Result<Row, Failed> {
    let url = server_of(make, Way::Lease)?.url();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (own, naive) = runtime.block_on(measure(&url))?;
    let figures = |rounds: &[Round]| {
        vec![
            ("winners of a round", rounds.iter().map(|round| round.winners).sum::<usize>() as f64 / ROUNDS as f64),
            ("1213 and 1205 surfaced", rounds.iter().map(|round| round.surfaced).sum::<usize>() as f64),
            ("ms until all are answered", median(rounds.iter().map(|round| round.millis).collect())),
        ]
    };
    let name = make.name();
    let mut row = Row {
        name: format!("lease-crowd-{name}"),
        about: format!(
            "{ASKERS} askers at the same time on one lease row of {name} that has expired, each by a store and a connection of its \
             own, {ROUNDS} times."
        ),
        contenders: vec![
            Contender { name: "delete the expired row and insert one, raw".into(), figures: figures(&naive) },
            Contender { name: "dlock".into(), figures: figures(&own) },
        ],
        aims: Vec::new(),
    };
    let is_single = own.iter().all(|round| round.winners == 1);
    row.aim("one winner in each round", row.figure("dlock", "winners of a round"), is_single);
    let surfaced = row.figure("dlock", "1213 and 1205 surfaced");
    row.aim("no 1213 or 1205 surfaced", surfaced, surfaced == 0.0);
    Ok(row)
}

async fn measure(url: &str) -> Result<(Vec<Round>, Vec<Round>), Failed> {
    let (mut stores, mut connections) = (Vec::new(), Vec::new());
    for _ in 0..ASKERS {
        let store = lease::open(&format!("{url}?max_connections=1"), &Clock::system()).await?;
        // From now on the namespace's way is known, and the connection is there.
        match store.try_acquire(&claim("warm")?, Queue::Leave).await? {
            Attempt::Acquired(hold) => store.release(&hold).await?,
            _ => return Err("nobody else wants this lock".into()),
        };
        stores.push(Arc::new(store));
        connections.push(Arc::new(Mutex::new(MySqlConnection::connect(url).await?)));
    }
    let mut change = MySqlConnection::connect(url).await?;
    let table = "CREATE TABLE IF NOT EXISTS naive (k VARCHAR(64) PRIMARY KEY, ends BIGINT NOT NULL)";
    sqlx::raw_sql(table).execute(&mut change).await?;
    let (mut own, mut naive) = (Vec::new(), Vec::new());
    // The first round finds no row, and is not counted.
    for round in 0..=ROUNDS {
        let answers =
            [together(stores.iter().cloned(), ask).await?, together(connections.iter().cloned(), insert).await?];
        let expire = "UPDATE naive SET ends = 1; UPDATE dlock_locks SET expires_us = 1 WHERE owner IS NOT NULL";
        sqlx::raw_sql(expire).execute(&mut change).await?;
        let [by_dlock, by_hand] = answers;
        if round > 0 {
            own.push(by_dlock);
            naive.push(by_hand);
        }
    }
    Ok((own, naive))
}

async fn together<A, F>(askers: impl Iterator<Item = A>, ask: impl Fn(A) -> F) -> Result<Round, Failed>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let start = Arc::new(Barrier::new(ASKERS + 1));
    let begin = |asker| {
        let (start, asking) = (start.clone(), ask(asker));
        tokio::spawn(async move {
            start.wait().await;
            asking.await
        })
    };
    let asking: Vec<_> = askers.map(begin).collect();
    start.wait().await;
    let begun = Instant::now();
    let (mut winners, mut surfaced) = (0, 0);
    for asker in asking {
        match asker.await?? {
            Some(has_won) => winners += usize::from(has_won),
            None => surfaced += 1,
        }
    }
    Ok(Round { winners, surfaced, millis: begun.elapsed().as_secs_f64() * 1000.0 })
}

fn claim(key: &'static str) -> Result<Arc<Claim>, Failed> {
    Ok(Arc::new(Claim::new(LockKey::new("crowd", Key::text(key))?, TTL, "bench")?))
}

/// The winner keeps the lock, as a process that dies does.
async fn ask(store: Arc<impl Backend>) -> Answer {
    match store.try_acquire(&claim("row")?, Queue::Leave).await {
        Ok(answer) => Ok(Some(matches!(answer, Attempt::Acquired(_)))),
        Err(error) if matches!(error.code(), Some("1213" | "1205")) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn insert(connection: Arc<Mutex<MySqlConnection>>) -> Answer {
    const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    let mut conn = connection.lock().await;
    let mut tx = conn.begin().await?;
    let delete = format!("DELETE FROM naive WHERE k = 'row' AND ends <= {NOW}");
    let insert = format!("INSERT INTO naive VALUES ('row', {NOW} + 600000000)");
    for sql in [delete, insert] {
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await {
            let server = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
            let answer = match server.map(MySqlDatabaseError::number) {
                Some(1062) => Ok(Some(false)),
                Some(1213 | 1205) => Ok(None),
                _ => Err(error.into()),
            };
            // Now, and not when the connection is used next.
            tx.rollback().await?;
            return answer;
        }
    }
    tx.commit().await?;
    Ok(Some(true))
}
