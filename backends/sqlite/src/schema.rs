//! Opens the file: its tables, and the settings that make a commit durable.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Health, Result};
use dlock_store::Clock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::connection::FileConnection;
use super::context::StoreContext;
use super::fault::{corrupt, fault, primary_code};
use super::file::{DatabaseFile, FileId};
use super::index::Index;
use super::time::Time;
use super::{sweep, tables, wakes};

/// How long a request waits for another process's request.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(1);

/// The limit while the file is opened: many processes may start at once, and each waits for the disk.
const OPENING_LIMIT: Duration = Duration::from_secs(5);

/// Tokens between two waits for the disk.
const TOKEN_BLOCK: i64 = 1 << 20;

/// After a restart of the host the last tokens may be forgotten, but not their bound.
const RESUME: &str = "UPDATE dlock_fence SET token = bound, bound = bound + ?1, boot = ?2 WHERE boot <> ?2";

const RAISE: &str = "UPDATE dlock_fence SET bound = bound + ?1 WHERE bound - token < ?1";

const VERSION: &str = "SELECT version FROM dlock_schema";

/// Statements that fail if the tables have another form.
const LOOKS: &[&str] = &[
    "SELECT k, owner, token, expires, boot, note FROM dlock_locks LIMIT 0",
    "SELECT k, slot, family, alone, owner, token, expires, boot, note FROM dlock_shares LIMIT 0",
    "SELECT k, owner, since, expires, boot FROM dlock_writers LIMIT 0",
    "SELECT k, boundary, open, owner, token, expires, boot, note, started, good_started, \
        good_took, good_note FROM dlock_runs LIMIT 0",
    "SELECT hold, record, expires, now, boot FROM dlock_broken LIMIT 0",
];

/// Connects; makes the file and its tables if they are not there.
pub(super) async fn prepare(context: &Arc<StoreContext>) -> Result<FileConnection> {
    let (database, time) = (&*context.database, &context.time);
    let clock = time.clock();
    // The identity of the file is read before the file is opened. If it is replaced in between, the first commit
    // notices.
    let file = context.looks.look().await?;
    let mut connected = FileConnection::new(connect(context).await?, file);
    let conn = connected.conn();
    if !is_ours(conn).await? {
        use_log(conn, clock).await?;
        create(conn, context).await?;
    }
    // The setting may have been changed back by hand.
    use_log(conn, clock).await?;
    if matches!(version(conn).await?, Some(1 | 2)) {
        upgrade(conn).await?;
    }
    expect_version(conn, database).await?;
    for look in LOOKS {
        sqlx::query(*look).fetch_all(&mut *conn).await.map_err(fault)?;
    }
    let counters: Vec<(String,)> =
        sqlx::query_as("SELECT boot FROM dlock_fence").fetch_all(&mut *conn).await.map_err(fault)?;
    let [(boot,)] = &counters[..] else {
        return Err(corrupt("the fencing counter is missing"));
    };
    let restarted = boot != time.boot();
    if restarted {
        sqlx::query(RESUME).bind(TOKEN_BLOCK).bind(time.boot()).execute(&mut *conn).await.map_err(fault)?;
    }
    no_more_waiting(conn, time).await.map_err(fault)?;
    let busy_timeout = format!("PRAGMA busy_timeout = {}", BUSY_LIMIT.as_millis());
    sqlx::raw_sql(AssertSqlSafe(busy_timeout)).execute(&mut *conn).await.map_err(fault)?;
    if restarted {
        sweep::other_boots(&mut connected, time).await?;
    }
    let index = match context.indexes.look().await {
        Ok(index) => index,
        Err(error) => {
            context.index_lost.send_replace(());
            return Err(error);
        }
    };
    commit_only_at(connected.conn(), context.database.clone(), file, index).await.map_err(fault)?;
    Ok(connected)
}

/// From here on a commit is refused if one of the paths names another file. A process that opens them then would not see
/// the commit, and locks in two files exclude nobody. The connection's own thread checks, so a disk that hangs stops
/// nobody else.
async fn commit_only_at(
    conn: &mut SqliteConnection,
    database: Arc<DatabaseFile>,
    file: FileId,
    index: Index,
) -> sqlx::Result<()> {
    conn.lock_handle().await?.set_commit_hook(move || database.identity().ok() == Some(file) && index.is_in_place());
    Ok(())
}

/// Rows that are written from here on end at the next boot of the host, if the host has an id for each boot.
pub(super) async fn no_more_waiting(conn: &mut SqliteConnection, time: &Time) -> sqlx::Result<()> {
    if time.knows_boot() {
        sqlx::raw_sql("PRAGMA synchronous = NORMAL").execute(conn).await?;
    }
    Ok(())
}

/// Rows that are written from here on survive a power failure. If the caller is dropped before it resets this, the
/// connection goes on waiting for the disk at every commit, which is slow but safe.
pub(super) async fn wait_for_disk(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("PRAGMA synchronous = FULL").execute(conn).await.map(drop)
}

/// Raises the bound of the tokens.
pub(super) async fn reserve(conn: &mut SqliteConnection, time: &Time) -> sqlx::Result<()> {
    wait_for_disk(conn).await?;
    sqlx::query(RAISE).bind(TOKEN_BLOCK).execute(&mut *conn).await?;
    no_more_waiting(conn, time).await
}

/// Connects to an existing file, with the longer wait of an opening process.
async fn connect(context: &Arc<StoreContext>) -> Result<SqliteConnection> {
    let waking_site = context.clone();
    SqliteConnectOptions::new()
        .filename(&context.database.path)
        .collation(wakes::COLLATION, move |key, other| {
            waking_site.wakes.tell(key);
            key.cmp(other)
        })
        .create_if_missing(false)
        .busy_timeout(OPENING_LIMIT)
        // The bound of the tokens must survive a power failure.
        .synchronous(SqliteSynchronous::Full)
        .thread_name(|_| "dlock-sqlite".into())
        .disable_statement_logging()
        .connect()
        .await
        .map_err(fault)
}

async fn is_ours(conn: &mut SqliteConnection) -> Result<bool> {
    let found: Vec<(i64,)> = sqlx::query_as("SELECT 1 FROM sqlite_schema WHERE name = 'dlock_schema'")
        .fetch_all(conn)
        .await
        .map_err(fault)?;
    Ok(!found.is_empty())
}

/// Readers and the writer do not wait for each other in this mode. It stays with the file.
async fn use_log(conn: &mut SqliteConnection, clock: &Clock) -> Result<()> {
    let end = clock.now().after(OPENING_LIMIT);
    loop {
        let mode = sqlx::query_as::<_, (String,)>("PRAGMA journal_mode = WAL").fetch_all(&mut *conn).await;
        match mode {
            Ok(mode) if mode.first().is_some_and(|(mode,)| mode == "wal") => return Ok(()),
            Ok(_) => {
                let need = "a filesystem with shared memory between processes".into();
                return Err(Error::new(
                    ErrorKind::Unsupported { need },
                    "the lock file cannot be switched to write-ahead logging",
                ));
            }
            // Switching the mode does not wait for other processes that are switching it too.
            Err(error) if primary_code(&error) == Some(5) && clock.now() < end => {
                clock.sleep_until(clock.now().after(Duration::from_millis(10))).await;
            }
            Err(error) => return Err(fault(error)),
        }
    }
}

async fn version(conn: &mut SqliteConnection) -> Result<Option<i64>> {
    let versions: Vec<(i64,)> = sqlx::query_as(VERSION).fetch_all(conn).await.map_err(fault)?;
    Ok(match versions[..] {
        [(version,)] => Some(version),
        _ => None,
    })
}

async fn expect_version(conn: &mut SqliteConnection, database: &DatabaseFile) -> Result<()> {
    if version(conn).await? == Some(3) {
        return Ok(());
    }
    Err(database.complain(ErrorKind::SchemaMismatch, "its tables belong to another release of dlock"))
}

/// Begins to write, as every lock does: the file is still dlock's, of this release, and takes writes.
pub(super) async fn health(conn: &mut SqliteConnection, database: &DatabaseFile) -> Result<Health> {
    let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
    let health = version_of(&mut transaction, database).await;
    // At once: a transaction that is only dropped keeps writers out until the connection is used again.
    transaction.rollback().await.map_err(fault)?;
    health
}

async fn version_of(conn: &mut SqliteConnection, database: &DatabaseFile) -> Result<Health> {
    expect_version(conn, database).await?;
    let (sqlite,): (String,) = sqlx::query_as("SELECT sqlite_version()").fetch_one(conn).await.map_err(fault)?;
    Ok(Health::new().version(format!("SQLite {sqlite}")))
}

/// Adds the tables of later versions. Held locks stay held, and their processes notice nothing.
async fn upgrade(conn: &mut SqliteConnection) -> Result<()> {
    let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
    // Another process may have done this first.
    let missing: &[&str] = match version(&mut transaction).await? {
        Some(1) => &[tables::SECOND, tables::THIRD],
        Some(2) => &[tables::THIRD],
        _ => &[],
    };
    for tables in missing {
        sqlx::raw_sql(*tables).execute(&mut *transaction).await.map_err(fault)?;
    }
    transaction.commit().await.map_err(fault)
}

async fn create(conn: &mut SqliteConnection, context: &StoreContext) -> Result<()> {
    let mut transaction = conn.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
    // Another process may have done this first.
    if is_ours(&mut transaction).await? {
        return Ok(());
    }
    let entries: Vec<(i64,)> =
        sqlx::query_as("SELECT count(*) FROM sqlite_schema").fetch_all(&mut *transaction).await.map_err(fault)?;
    if entries != [(0,)] {
        let text = "it is the database of another program; locks need their own file";
        return Err(context.database.complain(ErrorKind::SchemaMismatch, text));
    }
    for tables in [tables::FIRST, tables::SECOND, tables::THIRD] {
        sqlx::raw_sql(tables).execute(&mut *transaction).await.map_err(fault)?;
    }
    // Begins with the time, so that tokens rise even if the file is deleted and created again.
    let first = i64::try_from(context.time.clock().wall_ms()).unwrap_or(0).saturating_mul(1000);
    sqlx::query("INSERT INTO dlock_fence (id, token, bound, boot) VALUES (1, ?1, ?1 + ?2, ?3)")
        .bind(first)
        .bind(TOKEN_BLOCK)
        .bind(context.time.boot())
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
    transaction.commit().await.map_err(fault)
}
