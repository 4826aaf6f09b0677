//! The tables of lease rows, records of broken holds, named locks and row locks, and the table of settings of a namespace.
//!
//! Keys are compared byte by byte. Not the end of a lease has an index, but the day of it. With an index on the end, updates
//! could not be heap-only (HOT), and the dead versions of a busy lock's row would stay in the table and its indexes until a
//! vacuum.

use dlock_contract::{ErrorKind, Health, Result};
use dlock_sql::{ServerTable, TableNames, compare_version, note_version, read_version};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;

const LEASES: [&ServerTable; 3] = [&LOCKS, &BREAKS, &META];

const NAMED_LOCKS: [&ServerTable; 3] = [&NAMED, &READ_WRITE, &META];

const ROW_LOCKS: [&ServerTable; 3] = [&ROWS, &META, &ROW_KEYS];

/// The columns of each table are `name:type:collation:key`, and `:generated` if the server computes the value. The key is
/// `PRI` for a part of the primary key, and `MUL` for the first column of another index, as in MySQL.
const LOCKS: ServerTable = ServerTable {
    name: dlock_sql::LOCKS,
    create: include_str!("../../migrations/20261123000001_dlock_locks.sql"),
    columns: &[
        "k:text:C:PRI",
        "owner:bytea::",
        "token:bigint::",
        "expires_us:bigint::",
        "note:text:C:",
        "hold:text:C:",
        "long_key:text:C:",
        "run_boundary:bigint::",
        "run_open:smallint::",
        "run_owner:bytea::",
        "run_started:bigint::",
        "good_started:bigint::",
        "good_took:bigint::",
        "good_note:text:C:",
        "expires_day:integer::MUL:generated",
    ],
};

const BREAKS: ServerTable = ServerTable {
    name: dlock_sql::BREAKS,
    create: include_str!("../../migrations/20261123000002_dlock_breaks.sql"),
    columns: &["hold:text:C:PRI", "record:text:C:", "until_us:bigint::"],
};

const META: ServerTable = ServerTable {
    name: dlock_sql::META,
    create: include_str!("../../migrations/20261123000003_dlock_meta.sql"),
    columns: &["name:text:C:PRI", "word:text:C:", "number:bigint::"],
};

const NAMED: ServerTable = ServerTable {
    name: dlock_sql::NAMED,
    create: include_str!("../../migrations/20261124000001_dlock_named.sql"),
    columns: &[
        "k:text:C:PRI",
        "lock_id:text:C:",
        "token:bigint::",
        "session:bigint::",
        "note:text:C:",
        "hold:text:C:",
        "long_key:text:C:",
        "used_us:bigint::",
        "broken_hold:text:C:",
        "broken_record:text:C:",
    ],
};

const READ_WRITE: ServerTable = ServerTable {
    name: dlock_sql::READ_WRITE,
    create: include_str!("../../migrations/20261124000002_dlock_read_write.sql"),
    columns: &[
        "k:text:C:PRI",
        "session:bigint::PRI",
        "lock_id:text:C:",
        "is_write:boolean::",
        "token:bigint::",
        "note:text:C:",
        "hold:text:C:",
        "used_us:bigint::",
        "broken_hold:text:C:",
        "broken_record:text:C:",
    ],
};

const ROWS: ServerTable = ServerTable {
    name: dlock_sql::ROWS,
    create: include_str!("../../migrations/20261125000001_dlock_rows.sql"),
    columns: &[
        "k:text:C:PRI",
        "part:text:C:PRI",
        "token:bigint::",
        "mode:bigint::",
        "session:bigint::",
        "xact:bigint::",
        "hold:text:C:",
        "note:text:C:",
        "long_key:text:C:",
        "broken_hold:text:C:",
        "broken_record:text:C:",
    ],
};

const ROW_KEYS: ServerTable = ServerTable {
    name: dlock_sql::ROW_KEYS,
    create: include_str!("../../migrations/20261125000002_dlock_row_keys.sql"),
    columns: &["k:text:C:PRI"],
};

const COLUMNS: &str = "\
    SELECT a.attname || ':' || format_type(a.atttypid, a.atttypmod) || ':' || coalesce(l.collname, '') || ':' \
            || CASE WHEN i.indrelid IS NOT NULL THEN 'PRI' WHEN EXISTS (SELECT FROM pg_index o WHERE o.indrelid = c.oid \
                AND o.indkey[0] = a.attnum AND o.indpred IS NULL AND NOT o.indisprimary) THEN 'MUL' ELSE '' END \
            || CASE WHEN a.attgenerated = '' THEN '' ELSE ':generated' END, \
        c.relkind IN ('r', 'p') AND (c.relpersistence = 'p' OR {may_be_unlogged} AND c.relpersistence = 'u') \
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
        LEFT JOIN pg_collation l ON l.oid = a.attcollation \
        LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey) \
    WHERE c.oid = to_regclass('{table}') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Runs the statements of a lock, so that a missing right is reported when the store is opened and not at the first lock. The
/// transaction is rolled back. Each opening uses a name of its own, so that none waits for another.
const PROBE: &str = "\
    BEGIN; \
    INSERT INTO {s}{t}locks (k, token, expires_us, note, hold) VALUES ('{probe}', 0, 0, '', ''); \
    UPDATE {s}{t}locks SET token = token WHERE k = '{probe}'; \
    INSERT INTO {s}{t}breaks (hold, record, until_us) VALUES ('{probe}', '', 0); \
    UPDATE {s}{t}breaks SET until_us = until_us WHERE hold = '{probe}'; \
    INSERT INTO {s}{t}meta (name, word, number) VALUES ('{probe}', '', 0); \
    SELECT 1 FROM {s}{t}locks, {s}{t}breaks, {s}{t}meta WHERE false; \
    ROLLBACK";

/// The same for named locks.
const NAMED_PROBE: &str = "\
    BEGIN; \
    INSERT INTO {s}{t}named (k, lock_id, token, session, note, hold, used_us) VALUES ('{probe}', '', 0, 0, '', '', 0) \
    ON CONFLICT (k) DO UPDATE SET token = {t}named.token + 1; \
    INSERT INTO {s}{t}meta (name, word, number) VALUES ('{probe}', '', 0); \
    INSERT INTO {s}{t}read_write (k, session, lock_id, is_write, token, note, hold, used_us) \
    VALUES ('{probe}', 0, '', false, 0, '', '', 0) \
    ON CONFLICT (k, session) DO UPDATE SET token = {t}read_write.token + 1; \
    SELECT 1 FROM {s}{t}named, {s}{t}read_write, {s}{t}meta WHERE false; \
    ROLLBACK";

/// The same for row locks. The upsert also fails if the table lacks its key of two columns.
const ROW_PROBE: &str = "\
    BEGIN; \
    INSERT INTO {s}{t}rows (k, part, token, mode, session, xact, hold, note, long_key) \
    VALUES ('{probe}', '', 0, 0, 0, 0, '', '', '') ON CONFLICT (k, part) DO UPDATE SET token = {t}rows.token + 1; \
    INSERT INTO {s}{t}meta (name, word, number) VALUES ('{probe}', '', 0); \
    SELECT 1 FROM {s}{t}rows, {s}{t}meta WHERE false; \
    ROLLBACK";

/// The same with rows of dlock's own.
const ROW_KEY_PROBE: &str = "\
    BEGIN; INSERT INTO {s}{t}row_keys (k) VALUES ('{probe}'); \
    SELECT 1 FROM {s}{t}row_keys WHERE k = '{probe}' FOR UPDATE; ROLLBACK";

/// Creates missing tables of lease rows, checks their columns and tests the rights.
pub(crate) async fn prepare(conn: &mut PgConnection, names: &TableNames) -> Result<()> {
    prepare_all(conn, names, &LEASES, PROBE).await
}

/// The same for named locks.
pub(crate) async fn prepare_named(conn: &mut PgConnection, names: &TableNames) -> Result<()> {
    prepare_all(conn, names, &NAMED_LOCKS, NAMED_PROBE).await
}

/// The same for row locks. `is_own`: the rows are in dlock's own table.
pub(crate) async fn prepare_rows(conn: &mut PgConnection, names: &TableNames, is_own: bool) -> Result<()> {
    prepare_all(conn, names, row_lock_tables(is_own), ROW_PROBE).await?;
    if is_own { Ok(()) } else { test_rights(conn, names, ROW_KEY_PROBE).await }
}

fn row_lock_tables(is_own: bool) -> &'static [&'static ServerTable] {
    if is_own { &ROW_LOCKS[..2] } else { &ROW_LOCKS }
}

async fn prepare_all(conn: &mut PgConnection, names: &TableNames, tables: &[&ServerTable], probe: &str) -> Result<()> {
    for table in tables {
        if check_table(conn, names, table).await? {
            continue;
        }
        let create = table.create_if_missing(names);
        match sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault) {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => return Err(table.cannot_create(names)),
            // If two programs create the table at once, one of them may get an error. Then only the table's columns count.
            Err(error) if !check_table(conn, names, table).await? => return Err(error),
            Ok(_) if !check_table(conn, names, table).await? => return Err(table.missing(names)),
            _ => {}
        }
    }
    test_rights(conn, names, probe).await?;
    if !check_version(conn, names).await? {
        let note = note_version(names, " ON CONFLICT DO NOTHING");
        sqlx::raw_sql(AssertSqlSafe(note)).execute(&mut *conn).await.map_err(fault)?;
        check_version(conn, names).await?;
    }
    Ok(())
}

/// False if no version is noted yet.
async fn check_version(conn: &mut PgConnection, names: &TableNames) -> Result<bool> {
    let found = sqlx::raw_sql(AssertSqlSafe(read_version(names))).fetch_optional(conn).await.map_err(fault)?;
    let Some(found) = found else { return Ok(false) };
    compare_version(names, found.try_get(0).map_err(fault)?)?;
    Ok(true)
}

async fn test_rights(conn: &mut PgConnection, names: &TableNames, probe: &str) -> Result<()> {
    let probe = names.in_text(probe).replace("{probe}", &format!("{:016x}", fastrand::u64(..)));
    let probe = sqlx::raw_sql(AssertSqlSafe(probe)).execute(&mut *conn).await;
    if probe.is_err() {
        // Without this, the transaction would stay open.
        let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
    }
    probe.map(drop).map_err(fault)
}

/// Checks that the tables of lease rows exist with the right columns.
pub(crate) async fn check(conn: &mut PgConnection, names: &TableNames) -> Result<()> {
    check_all(conn, names, &LEASES).await
}

/// The same for named locks.
pub(crate) async fn check_named(conn: &mut PgConnection, names: &TableNames) -> Result<()> {
    check_all(conn, names, &NAMED_LOCKS).await
}

/// The same for row locks.
pub(crate) async fn check_rows(conn: &mut PgConnection, names: &TableNames, is_own: bool) -> Result<()> {
    check_all(conn, names, row_lock_tables(is_own)).await
}

async fn check_all(conn: &mut PgConnection, names: &TableNames, tables: &[&ServerTable]) -> Result<()> {
    for table in tables {
        if !check_table(conn, names, table).await? {
            return Err(table.missing(names));
        }
    }
    check_version(conn, names).await.map(drop)
}

async fn check_table(conn: &mut PgConnection, names: &TableNames, table: &ServerTable) -> Result<bool> {
    let named = names.full(table.name);
    // As one message: a pooler could give the parts of a prepared statement to different sessions.
    let sql = COLUMNS.replace("{table}", &named).replace("{may_be_unlogged}", &table.may_be_unlogged().to_string());
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)?;
    let row = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
    let rows: Vec<(String, bool)> = rows.iter().map(row).collect::<sqlx::Result<_>>().map_err(fault)?;
    if rows.iter().any(|(_, is_table)| !is_table) {
        let why = if table.may_be_unlogged() { "" } else { ": an unlogged one loses its rows when the server fails" };
        return Err(table.refused(names, &format!("must be an ordinary table{why}")));
    }
    if rows.is_empty() || rows.iter().map(|(column, _)| column.as_str()).eq(table.columns.iter().copied()) {
        return Ok(!rows.is_empty());
    }
    Err(table.refused(names, "does not have the right columns and indexes"))
}

/// The server's version, and a finding for each setting that weakens a promise.
pub(crate) async fn health(conn: &mut PgConnection) -> Result<Health> {
    let sql = "SELECT current_setting('server_version'), current_setting('fsync') = 'on' AND \
        current_setting('full_page_writes') = 'on'";
    let row = sqlx::raw_sql(sql).fetch_one(conn).await.map_err(fault)?;
    let version: String = row.try_get(0).map_err(fault)?;
    let health = Health::new().version(format!("PostgreSQL {version}")).role("primary");
    Ok(match row.try_get(1).map_err(fault)? {
        true => health,
        false => health.finding(
            "fsync or full_page_writes is off, so a power failure may take back locks and tokens: set both to on",
        ),
    })
}
