//! The tables of lease rows, records of broken holds, named locks and row locks, and the table of settings of a namespace.
//!
//! Names and keys are bytes, so no collation changes how they compare. Not the end of a lease has an index, but the day of it:
//! an acquisition, a renewal or a release would else also have to write the index each time. With an index and a full disk,
//! an insert that finds no room for the entry is taken back. MariaDB then tries for 5 s to merge pages, unless
//! `MERGE_THRESHOLD` says that they are full enough.

use dlock_contract::{ErrorKind, Health, Result};
use dlock_sql::{ServerTable, TableNames, compare_version, note_version, read_version};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::cluster;
use crate::server::fault::fault;

const LEASES: [&ServerTable; 3] = [&LOCKS, &BREAKS, &META];

const NAMED_LOCKS: [&ServerTable; 2] = [&NAMED, &META];

const ROW_LOCKS: [&ServerTable; 3] = [&ROWS, &META, &ROW_KEYS];

/// The columns of each table are `name:type:key`, and `:generated` if the server computes the value.
const LOCKS: ServerTable = ServerTable {
    name: dlock_sql::LOCKS,
    create: include_str!("../../migrations/20261123000001_dlock_locks.sql"),
    columns: &[
        "k:varbinary(255):PRI",
        "owner:varbinary(16):",
        "token:bigint:",
        "expires_us:bigint:",
        "note:varbinary(256):",
        "hold:varbinary(16):",
        "long_key:varbinary(4096):",
        "run_boundary:bigint:",
        "run_open:smallint:",
        "run_owner:varbinary(16):",
        "run_started:bigint:",
        "good_started:bigint:",
        "good_took:bigint:",
        "good_note:varbinary(256):",
        "expires_day:int:MUL:generated",
    ],
};

const BREAKS: ServerTable = ServerTable {
    name: dlock_sql::BREAKS,
    create: include_str!("../../migrations/20261123000002_dlock_breaks.sql"),
    columns: &["hold:varbinary(16):PRI", "record:varbinary(256):", "until_us:bigint:"],
};

const META: ServerTable = ServerTable {
    name: dlock_sql::META,
    create: include_str!("../../migrations/20261123000003_dlock_meta.sql"),
    columns: &["name:varbinary(128):PRI", "word:varbinary(128):", "number:bigint:"],
};

const NAMED: ServerTable = ServerTable {
    name: dlock_sql::NAMED,
    create: include_str!("../../migrations/20261124000001_dlock_named.sql"),
    columns: &[
        "k:varbinary(255):PRI",
        "lock_id:varbinary(64):",
        "token:bigint:",
        "session:bigint:",
        "note:varbinary(256):",
        "hold:varbinary(16):",
        "long_key:varbinary(4096):",
        "broken_hold:varbinary(16):",
        "broken_record:varbinary(256):",
    ],
};

const ROWS: ServerTable = ServerTable {
    name: dlock_sql::ROWS,
    create: include_str!("../../migrations/20261125000001_dlock_rows.sql"),
    columns: &[
        "k:varbinary(255):PRI",
        "part:varbinary(16):PRI",
        "token:bigint:",
        "mode:bigint:",
        "session:bigint:",
        "xact:bigint:",
        "hold:varbinary(16):",
        "note:varbinary(256):",
        "long_key:varbinary(4096):",
        "broken_hold:varbinary(16):",
        "broken_record:varbinary(256):",
    ],
};

const ROW_KEYS: ServerTable = ServerTable {
    name: dlock_sql::ROW_KEYS,
    create: include_str!("../../migrations/20261125000002_dlock_row_keys.sql"),
    columns: &["k:varbinary(255):PRI"],
};

/// Runs the statements of a lock, so that a missing right is reported when the store is opened and not at the first lock. The
/// transaction is rolled back. Each opening uses a name of its own, so that none waits for another.
const PROBES: [&str; 6] = [
    "INSERT INTO {t}locks (k, token, expires_us, note, hold) VALUES ('{probe}', 0, 0, '', '')",
    "UPDATE {t}locks SET token = token WHERE k = '{probe}'",
    "INSERT INTO {t}breaks (hold, record, until_us) SELECT '{probe}', '', token FROM {t}locks WHERE k = '{probe}'",
    "UPDATE {t}breaks SET until_us = until_us WHERE hold = '{probe}'",
    "INSERT INTO {t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {t}meta WHERE name = '{probe}'",
];

/// The same for named locks. The upsert reports a missing right by the same name as a lock would.
const NAMED_PROBES: [&str; 4] = [
    "INSERT INTO {t}named (k, lock_id, token, session, note, hold) VALUES ('{probe}', '', 0, 0, '', '') \
     ON DUPLICATE KEY UPDATE token = {t}named.token + 1",
    "SELECT 1 FROM {t}named WHERE k = '{probe}'",
    "INSERT INTO {t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {t}meta WHERE name = '{probe}'",
];

/// The same for row locks. The last two are skipped for rows of a user's own table.
const ROW_PROBES: [&str; 6] = [
    "INSERT INTO {t}rows (k, part, token, mode, session, xact, hold, note, long_key) \
     VALUES ('{probe}', '', 0, 0, 0, 0, '', '', '') ON DUPLICATE KEY UPDATE token = {t}rows.token + 1",
    "SELECT 1 FROM {t}rows WHERE k = '{probe}'",
    "INSERT INTO {t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {t}meta WHERE name = '{probe}'",
    "INSERT INTO {t}row_keys (k) VALUES ('{probe}')",
    "SELECT 1 FROM {t}row_keys WHERE k = '{probe}' FOR UPDATE",
];

/// Writes nothing, but a read-only database refuses it too.
const NO_WRITE: &str = "INSERT INTO {t}meta (name, word, number) SELECT '', '', 0 FROM DUAL WHERE 1 = 0";

/// Creates missing tables of lease rows, checks their columns and tests the rights.
pub(super) async fn prepare(conn: &mut MySqlConnection, names: &TableNames) -> Result<()> {
    prepare_all(conn, names, &LEASES, &PROBES).await
}

/// The same for named locks.
pub(crate) async fn prepare_named(conn: &mut MySqlConnection, names: &TableNames) -> Result<()> {
    prepare_all(conn, names, &NAMED_LOCKS, &NAMED_PROBES).await
}

/// The same for row locks. `is_own`: the rows are in dlock's own table.
pub(crate) async fn prepare_rows(conn: &mut MySqlConnection, names: &TableNames, is_own: bool) -> Result<()> {
    prepare_all(conn, names, row_lock_tables(is_own), if is_own { &ROW_PROBES[..4] } else { &ROW_PROBES }).await
}

fn row_lock_tables(is_own: bool) -> &'static [&'static ServerTable] {
    if is_own { &ROW_LOCKS[..2] } else { &ROW_LOCKS }
}

async fn prepare_all(
    conn: &mut MySqlConnection,
    names: &TableNames,
    tables: &[&ServerTable],
    probes: &[&str],
) -> Result<()> {
    for table in tables {
        create_if_missing(conn, names, table).await?;
    }
    test_rights(conn, names, probes).await?;
    if !check_version(conn, names).await? {
        let note = note_version(names, " ON DUPLICATE KEY UPDATE number = number");
        sqlx::raw_sql(AssertSqlSafe(note)).execute(&mut *conn).await.map_err(fault)?;
        check_version(conn, names).await?;
    }
    Ok(())
}

/// False if no version is noted yet.
async fn check_version(conn: &mut MySqlConnection, names: &TableNames) -> Result<bool> {
    let found = sqlx::raw_sql(AssertSqlSafe(read_version(names))).fetch_optional(conn).await.map_err(fault)?;
    let Some(found) = found else { return Ok(false) };
    compare_version(names, found.try_get(0).map_err(fault)?)?;
    Ok(true)
}

async fn create_if_missing(conn: &mut MySqlConnection, names: &TableNames, table: &ServerTable) -> Result<()> {
    if check_table(conn, names, table).await? {
        return Ok(());
    }
    // If two programs create the table at once, one of them finds it.
    let create = table.create_if_missing(names);
    let created = sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault);
    created.map_err(
        |error| if *error.kind() == ErrorKind::PermissionDenied { table.cannot_create(names) } else { error },
    )?;
    if check_table(conn, names, table).await? { Ok(()) } else { Err(table.missing(names)) }
}

/// Checks that the tables of lease rows exist with the right columns.
pub(super) async fn check(conn: &mut MySqlConnection, names: &TableNames) -> Result<()> {
    check_all(conn, names, &LEASES).await
}

/// The same for named locks.
pub(crate) async fn check_named(conn: &mut MySqlConnection, names: &TableNames) -> Result<()> {
    check_all(conn, names, &NAMED_LOCKS).await
}

/// The same for row locks.
pub(crate) async fn check_rows(conn: &mut MySqlConnection, names: &TableNames, is_own: bool) -> Result<()> {
    check_all(conn, names, row_lock_tables(is_own)).await
}

async fn check_all(conn: &mut MySqlConnection, names: &TableNames, tables: &[&ServerTable]) -> Result<()> {
    for table in tables {
        if !check_table(conn, names, table).await? {
            return Err(table.missing(names));
        }
    }
    check_version(conn, names).await?;
    sqlx::raw_sql(AssertSqlSafe(names.in_text(NO_WRITE))).execute(conn).await.map(drop).map_err(fault)
}

async fn check_table(conn: &mut MySqlConnection, names: &TableNames, table: &ServerTable) -> Result<bool> {
    // Each view has the schema and the name as constants. Where a view gets them from another one, MariaDB opens every table of
    // the server: that took 140 ms instead of 4 beside a thousand other tables.
    let sql = "\
        SELECT CAST(CONCAT(c.column_name, ':', c.column_type, ':', c.column_key, \
            IF(COALESCE(c.generation_expression, '') = '', '', ':generated')) AS CHAR), CAST(t.engine AS CHAR) \
        FROM information_schema.columns c JOIN information_schema.tables t \
        WHERE c.table_schema = DATABASE() AND c.table_name = ? AND t.table_schema = DATABASE() AND t.table_name = ? \
        ORDER BY c.ordinal_position";
    let name = names.in_text(table.name);
    let rows = sqlx::query(sql).bind(&name).bind(&name).fetch_all(conn).await.map_err(fault)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let engine: Option<String> = row.try_get(1).map_err(fault)?;
        if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case("innodb")) {
            return Err(table.refused(names, "must be an InnoDB table, because other engines may lose rows"));
        }
        let column: String = row.try_get(0).map_err(fault)?;
        // Some releases add a width to the type.
        found.push(column.replace("bigint(20)", "bigint").replace("smallint(6)", "smallint").replace("int(11)", "int"));
    }
    if found.is_empty() || found == table.columns {
        return Ok(!found.is_empty());
    }
    Err(table.refused(names, "does not have the right columns and indexes"))
}

async fn test_rights(conn: &mut MySqlConnection, names: &TableNames, probes: &[&str]) -> Result<()> {
    sqlx::raw_sql("START TRANSACTION").execute(&mut *conn).await.map_err(fault)?;
    let name = format!("{:016x}", fastrand::u64(..));
    for probe in probes {
        let probe = AssertSqlSafe(names.in_text(probe).replace("{probe}", &name));
        sqlx::raw_sql(probe).execute(&mut *conn).await.map_err(fault)?;
    }
    sqlx::raw_sql("ROLLBACK").execute(conn).await.map(drop).map_err(fault)
}

/// The server's version, and a finding for each setting that weakens a promise.
pub(crate) async fn health(conn: &mut MySqlConnection) -> Result<Health> {
    let sql = format!(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', {})",
        cluster::variables()
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)?;
    let mut health = Health::new().role("primary");
    for row in &rows {
        let (name, value): (String, String) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
        health = match (name.as_str(), value.as_str()) {
            ("version", version) => {
                let product = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
                health.version(format!("{product} {version}"))
            }
            ("innodb_flush_log_at_trx_commit", "0" | "2") => health.finding(
                "innodb_flush_log_at_trx_commit is not 1, so a power failure may take back a second of locks and tokens: set it \
                 to 1",
            ),
            (name, value) if cluster::has_several_writers(name, value) => health.finding(
                "this server is a node of a cluster with several writable nodes, which may lose a commit at a failure: let all \
                 programs use one node",
            ),
            _ => health,
        };
    }
    Ok(health)
}
