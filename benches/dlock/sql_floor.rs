//! The statements of SQL locks alone, by the same client as dlock's.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row as _};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Failed;
use crate::sql::{CONNECTIONS, Make, Way};

/// Connections of the client, and rows in dlock's own tables. By `way=row` each has another one for the records.
#[derive(Clone)]
pub(crate) struct Floor {
    connections: Arc<[Arc<Mutex<Conn>>]>,
    /// The runtime of the connections.
    runtime: Handle,
}

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
    "UPDATE dlock_named SET token = nextval('dlock_tokens'), note = 'floor' WHERE k = $1 RETURNING token",
    "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
];

/// The statements of one cycle of a row lock. The last one writes the record: another connection runs it before the
/// `ROLLBACK`.
const MYSQL_ROW: [&str; 4] = [
    "START TRANSACTION READ WRITE",
    "SELECT k FROM dlock_row_keys WHERE k = ? FOR UPDATE NOWAIT",
    "ROLLBACK",
    "UPDATE dlock_rows SET token = LAST_INSERT_ID(token + 1), note = 'floor' WHERE k = ? AND part = ''",
];

const POSTGRES_ROW: [&str; 4] = [
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    "SELECT k FROM dlock_row_keys WHERE k = $1 FOR UPDATE NOWAIT",
    "ROLLBACK",
    "UPDATE dlock_rows SET token = token + 1, note = 'floor' WHERE k = $1 AND part = '' RETURNING token",
];

impl Floor {
    pub(crate) async fn connect(make: Make, way: Way, url: &str) -> Result<Self, Failed> {
        let mut connections = Vec::new();
        for _ in 0..if way == Way::Row { 2 * CONNECTIONS } else { CONNECTIONS } {
            connections.push(Arc::new(Mutex::new(match make {
                Make::Postgres => Conn::Postgres(PgConnection::connect(url).await?),
                _ => Conn::MySql(MySqlConnection::connect(url).await?),
            })));
        }
        let floor = Self { connections: connections.into(), runtime: Handle::current() };
        for task in 0..64 {
            let key = key_of(task);
            let inserts: &[(&str, &str)] = match way {
                Way::Lease => &[("dlock_locks (k, token, expires_us, note, hold)", ", 0, 0, '', ''")],
                Way::Named if make == Make::Postgres => {
                    &[("dlock_named (k, token, session, lock_id, note, hold, used_us)", ", 0, 0, '', '', '', 0")]
                }
                Way::Named => &[("dlock_named (k, token, session, lock_id, note, hold)", ", 0, 0, '', '', ''")],
                Way::Row => &[
                    ("dlock_row_keys (k)", ""),
                    (
                        "dlock_rows (k, part, token, mode, session, xact, hold, note, long_key)",
                        ", '', 0, 0, 0, 0, '', '', ''",
                    ),
                ],
            };
            for (table, zeros) in inserts {
                match &mut *floor.of(task).lock().await {
                    Conn::MySql(conn) => {
                        let insert = AssertSqlSafe(format!("INSERT IGNORE INTO {table} VALUES (?{zeros})"));
                        sqlx::query(insert).bind(key.as_bytes()).execute(conn).await?;
                    }
                    Conn::Postgres(conn) => {
                        let insert = format!("INSERT INTO {table} VALUES ($1{zeros}) ON CONFLICT DO NOTHING");
                        sqlx::query(AssertSqlSafe(insert)).bind(&key).execute(conn).await?;
                    }
                }
            }
        }
        Ok(floor)
    }

    fn of(&self, task: usize) -> &Arc<Mutex<Conn>> {
        &self.connections[task % CONNECTIONS]
    }

    /// A cycle of the raw statements. By `way=named` the contender says whether they draw a token.
    pub(crate) async fn cycle(&self, way: Way, contender: usize, task: usize) -> Result<(), Failed> {
        match way {
            Way::Lease => {
                let owner = fastrand::u128(..).to_be_bytes();
                self.lease_step(task, owner, 0).await?;
                self.lease_step(task, owner, 1).await
            }
            Way::Named => self.named_cycle(contender > 0, task).await,
            Way::Row => {
                let conn = self.take_row(task).await?;
                Self::roll_back(conn).await
            }
        }
    }

    /// The same, where a caller never drives a connection: each request is a task of the connections' runtime.
    pub(crate) async fn driven_cycle(&self, way: Way, task: usize) -> Result<(), Failed> {
        match way {
            Way::Lease => {
                let owner = fastrand::u128(..).to_be_bytes();
                for step in 0..2 {
                    let floor = self.clone();
                    self.runtime.spawn(async move { floor.lease_step(task, owner, step).await }).await??;
                }
                Ok(())
            }
            Way::Named => Err("no such contender".into()),
            Way::Row => {
                let floor = self.clone();
                let conn = self.runtime.spawn(async move { floor.take_row(task).await }).await??;
                self.runtime.spawn(Self::roll_back(conn)).await?
            }
        }
    }

    async fn take_row(&self, task: usize) -> Result<OwnedMutexGuard<Conn>, Failed> {
        let key = key_of(task);
        // As a hold has its connection for itself.
        let mut conn = self.of(task).clone().lock_owned().await;
        let records = &self.connections[CONNECTIONS + task % CONNECTIONS];
        let is_done = match &mut *conn {
            Conn::MySql(conn) => {
                sqlx::raw_sql(MYSQL_ROW[0]).execute(&mut *conn).await?;
                let found = sqlx::query(MYSQL_ROW[1]).bind(key.as_bytes()).fetch_all(&mut *conn).await?.len();
                let Conn::MySql(records) = &mut *records.lock().await else { return Err("another server".into()) };
                let drawn = sqlx::query(MYSQL_ROW[3]).bind(key.as_bytes()).execute(records).await?.rows_affected();
                found == 1 && drawn == 1
            }
            Conn::Postgres(conn) => {
                sqlx::raw_sql(POSTGRES_ROW[0]).execute(&mut *conn).await?;
                let found = sqlx::query(POSTGRES_ROW[1]).bind(&key).fetch_all(&mut *conn).await?.len();
                let Conn::Postgres(records) = &mut *records.lock().await else { return Err("another server".into()) };
                let drawn = sqlx::query(POSTGRES_ROW[3]).bind(&key).fetch_all(records).await?.len();
                found == 1 && drawn == 1
            }
        };
        if is_done { Ok(conn) } else { Err("the floor's row was not there".into()) }
    }

    async fn roll_back(mut conn: OwnedMutexGuard<Conn>) -> Result<(), Failed> {
        match &mut *conn {
            Conn::MySql(conn) => sqlx::raw_sql(MYSQL_ROW[2]).execute(conn).await.map(drop)?,
            Conn::Postgres(conn) => sqlx::raw_sql(POSTGRES_ROW[2]).execute(conn).await.map(drop)?,
        }
        Ok(())
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

    async fn lease_step(&self, task: usize, owner: [u8; 16], step: usize) -> Result<(), Failed> {
        let key = key_of(task);
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
        if changed == 1 { Ok(()) } else { Err("the floor's lock was not free, or not its own".into()) }
    }
}

fn key_of(task: usize) -> String {
    format!("floor:{task}")
}
