//! The tables of lease rows, records of broken holds, named locks and row locks, and the table of settings of a namespace.
//!
//! Keys are compared byte by byte. The index is on the day on which a lease ends, not on its exact end. With an index
//! on the end, updates could not be heap-only (HOT), and the dead versions of a busy lock's row would stay in the table and its
//! indexes until a vacuum.

use dlock_contract::{Health, Result};
use dlock_sql::{ServerTable, TableNames, TableServer, TableSet};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::{NO_SCHEMA, fault, no_schema_in_path};
use crate::server::other_tables;

/// For lease rows.
pub(crate) const LEASES: TableSet = TableSet { tables: &[&LOCKS, &BREAKS, &META], probes: &PROBES };

/// For named locks.
pub(crate) const NAMED_LOCKS: TableSet = TableSet { tables: &[&NAMED, &READ_WRITE, &META], probes: &NAMED_PROBES };

/// For row locks. `is_own`: the rows that are locked are in the user's own table.
pub(crate) fn row_locks(is_own: bool) -> TableSet {
    match is_own {
        true => TableSet { tables: &[&ROWS, &META], probes: &ROW_PROBES[..3] },
        false => TableSet { tables: &[&ROWS, &META, &ROW_KEYS], probes: &ROW_PROBES },
    }
}

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

/// The statements of a lock, by which the rights are tested.
const PROBES: [&str; 6] = [
    "INSERT INTO {s}{t}locks (k, token, expires_us, note, hold) VALUES ('{probe}', 0, 0, '', '')",
    "UPDATE {s}{t}locks SET token = token WHERE k = '{probe}'",
    "INSERT INTO {s}{t}breaks (hold, record, until_us) VALUES ('{probe}', '', 0)",
    "UPDATE {s}{t}breaks SET until_us = until_us WHERE hold = '{probe}'",
    "INSERT INTO {s}{t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {s}{t}locks, {s}{t}breaks, {s}{t}meta WHERE false",
];

/// The statements for named locks.
const NAMED_PROBES: [&str; 4] = [
    "INSERT INTO {s}{t}named (k, lock_id, token, session, note, hold, used_us) VALUES ('{probe}', '', 0, 0, '', '', 0) \
     ON CONFLICT (k) DO UPDATE SET token = {t}named.token + 1",
    "INSERT INTO {s}{t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "INSERT INTO {s}{t}read_write (k, session, lock_id, is_write, token, note, hold, used_us) \
     VALUES ('{probe}', 0, '', false, 0, '', '', 0) ON CONFLICT (k, session) DO UPDATE SET token = {t}read_write.token + 1",
    "SELECT 1 FROM {s}{t}named, {s}{t}read_write, {s}{t}meta WHERE false",
];

/// The statements for row locks. The upsert also fails if the table lacks its key of two columns. The last two are
/// skipped for rows of a user's own table.
const ROW_PROBES: [&str; 5] = [
    "INSERT INTO {s}{t}rows (k, part, token, mode, session, xact, hold, note, long_key) \
     VALUES ('{probe}', '', 0, 0, 0, 0, '', '', '') ON CONFLICT (k, part) DO UPDATE SET token = {t}rows.token + 1",
    "INSERT INTO {s}{t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {s}{t}rows, {s}{t}meta WHERE false",
    "INSERT INTO {s}{t}row_keys (k) VALUES ('{probe}')",
    "SELECT 1 FROM {s}{t}row_keys WHERE k = '{probe}' FOR UPDATE",
];

/// The tables in the database of a connection.
pub(crate) struct Tables<'a> {
    pub(crate) conn: &'a mut PgConnection,
    pub(crate) names: &'a TableNames,
}

impl TableServer for Tables<'_> {
    const UNLESS_THERE: &'static str = " ON CONFLICT DO NOTHING";

    fn names(&self) -> &TableNames {
        self.names
    }

    async fn run(&mut self, sql: String) -> Result<()> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *self.conn).await.map(drop).map_err(fault);
        ran.map_err(|error| match error.code() {
            Some(NO_SCHEMA) if self.names.schema().is_none() => no_schema_in_path().because(error),
            _ => error,
        })
    }

    async fn number(&mut self, sql: String) -> Result<Option<i64>> {
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut *self.conn).await.map_err(fault)?;
        row.map(|row| row.try_get(0).map_err(fault)).transpose()
    }

    async fn has(&mut self, table: &ServerTable) -> Result<bool> {
        let named = self.names.full(table.name);
        // As one message: a pooler could give the parts of a prepared statement to different sessions.
        let sql = COLUMNS.replace("{table}", &named).replace("{may_be_unlogged}", &table.may_be_unlogged().to_string());
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *self.conn).await.map_err(fault)?;
        let row = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let rows: Vec<(String, bool)> = rows.iter().map(row).collect::<sqlx::Result<_>>().map_err(fault)?;
        if rows.iter().any(|(_, is_table)| !is_table) {
            let why =
                if table.may_be_unlogged() { "" } else { ": an unlogged one loses its rows when the server fails" };
            return Err(table.refused(self.names, &format!("must be an ordinary table{why}")));
        }
        if rows.is_empty() || rows.iter().map(|(column, _)| column.as_str()).eq(table.columns.iter().copied()) {
            return Ok(!rows.is_empty());
        }
        Err(table.refused(self.names, "does not have the right columns and indexes"))
    }
}

/// The server's version, and a finding for each setting that weakens a promise.
pub(crate) async fn health(conn: &mut PgConnection, names: &TableNames) -> Result<Health> {
    let sql = "SELECT current_setting('server_version'), current_setting('fsync') = 'on' AND \
        current_setting('full_page_writes') = 'on'";
    let row = sqlx::raw_sql(sql).fetch_one(&mut *conn).await.map_err(fault)?;
    let version: String = row.try_get(0).map_err(fault)?;
    let mut health = Health::new().version(format!("PostgreSQL {version}")).role("primary");
    if let Some(split) = other_tables::namespace_in_both(conn, names).await? {
        health = health.finding(split.finding());
    }
    Ok(match row.try_get(1).map_err(fault)? {
        true => health,
        false => health.finding(
            "fsync or full_page_writes is off, so a power failure may take back locks and tokens: set both to on",
        ),
    })
}
