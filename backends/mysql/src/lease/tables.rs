//! The tables of lease rows, records of broken holds, named locks and row locks, and the table of settings of a namespace.
//!
//! Names and keys are bytes, so no collation changes how they compare. The index is on the day on which a lease ends, not
//! on its exact end: an acquisition, a renewal or a release would else write the index each time. With an index and a full disk,
//! an insert that finds no room for the entry is taken back. MariaDB then tries for 5 s to merge pages, unless
//! `MERGE_THRESHOLD` says that they are full enough.

use dlock_contract::{Health, Result};
use dlock_sql::{ServerTable, TableNames, TableServer, TableSet};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;
use crate::server::{catalogue, cluster, other_tables};

/// For lease rows.
pub(crate) const LEASES: TableSet = TableSet { tables: &[&LOCKS, &BREAKS, &META], probes: &PROBES };

/// For named locks.
pub(crate) const NAMED_LOCKS: TableSet = TableSet { tables: &[&NAMED, &META], probes: &NAMED_PROBES };

/// For row locks. `is_own`: the rows that are locked are in the user's own table.
pub(crate) fn row_locks(is_own: bool) -> TableSet {
    match is_own {
        true => TableSet { tables: &[&ROWS, &META], probes: &ROW_PROBES[..4] },
        false => TableSet { tables: &[&ROWS, &META, &ROW_KEYS], probes: &ROW_PROBES },
    }
}

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

/// The statements of a lock, by which the rights are tested.
const PROBES: [&str; 6] = [
    "INSERT INTO {t}locks (k, token, expires_us, note, hold) VALUES ('{probe}', 0, 0, '', '')",
    "UPDATE {t}locks SET token = token WHERE k = '{probe}'",
    "INSERT INTO {t}breaks (hold, record, until_us) SELECT '{probe}', '', token FROM {t}locks WHERE k = '{probe}'",
    "UPDATE {t}breaks SET until_us = until_us WHERE hold = '{probe}'",
    "INSERT INTO {t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {t}meta WHERE name = '{probe}'",
];

/// The statements for named locks. The upsert reports a missing right by the same name as a lock would.
const NAMED_PROBES: [&str; 4] = [
    "INSERT INTO {t}named (k, lock_id, token, session, note, hold) VALUES ('{probe}', '', 0, 0, '', '') \
     ON DUPLICATE KEY UPDATE token = {t}named.token + 1",
    "SELECT 1 FROM {t}named WHERE k = '{probe}'",
    "INSERT INTO {t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {t}meta WHERE name = '{probe}'",
];

/// The statements for row locks. The last two are skipped for rows of a user's own table.
const ROW_PROBES: [&str; 6] = [
    "INSERT INTO {t}rows (k, part, token, mode, session, xact, hold, note, long_key) \
     VALUES ('{probe}', '', 0, 0, 0, 0, '', '', '') ON DUPLICATE KEY UPDATE token = {t}rows.token + 1",
    "SELECT 1 FROM {t}rows WHERE k = '{probe}'",
    "INSERT INTO {t}meta (name, word, number) VALUES ('{probe}', '', 0)",
    "SELECT 1 FROM {t}meta WHERE name = '{probe}'",
    "INSERT INTO {t}row_keys (k) VALUES ('{probe}')",
    "SELECT 1 FROM {t}row_keys WHERE k = '{probe}' FOR UPDATE",
];

/// The tables in the database of a connection.
pub(crate) struct Tables<'a> {
    pub(crate) conn: &'a mut MySqlConnection,
    pub(crate) names: &'a TableNames,
}

impl TableServer for Tables<'_> {
    const UNLESS_THERE: &'static str = " ON DUPLICATE KEY UPDATE number = number";

    fn names(&self) -> &TableNames {
        self.names
    }

    async fn run(&mut self, sql: String) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *self.conn).await.map(drop).map_err(fault)
    }

    async fn number(&mut self, sql: String) -> Result<Option<i64>> {
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut *self.conn).await.map_err(fault)?;
        row.map(|row| row.try_get(0).map_err(fault)).transpose()
    }

    async fn has(&mut self, table: &ServerTable) -> Result<bool> {
        // Each view has the schema and the name as constants. Where a view gets them from another one, MariaDB opens every table of
        // the server: that took 140 ms instead of 4 beside a thousand other tables.
        let name = self.names.in_text(table.name);
        let query = format!(
            "SELECT CAST(CONCAT(c.column_name, ':', c.column_type, ':', c.column_key, \
                IF(COALESCE(c.generation_expression, '') = '', '', ':generated')) AS CHAR), CAST(t.engine AS CHAR) \
            FROM information_schema.columns c JOIN information_schema.tables t {{itself}} \
            WHERE c.table_schema = DATABASE() AND c.table_name = '{name}' \
                AND t.table_schema = DATABASE() AND t.table_name = '{name}' ORDER BY c.ordinal_position"
        );
        let rows = catalogue::rows_of(self.conn, &self.names.full(table.name), &query).await.map_err(fault)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let engine: Option<String> = row.try_get(1).map_err(fault)?;
            if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case("innodb")) {
                return Err(table.refused(self.names, "must be an InnoDB table, because other engines may lose rows"));
            }
            let column: String = row.try_get(0).map_err(fault)?;
            // Some releases add a width to the type.
            found.push(
                column.replace("bigint(20)", "bigint").replace("smallint(6)", "smallint").replace("int(11)", "int"),
            );
        }
        if found.is_empty() || found == table.columns {
            return Ok(!found.is_empty());
        }
        Err(table.refused(self.names, "does not have the right columns and indexes"))
    }
}

/// Writes nothing, but a read-only database refuses it too.
pub(crate) async fn check_writable(conn: &mut MySqlConnection, names: &TableNames) -> Result<()> {
    let no_row = names.in_text("INSERT INTO {t}meta (name, word, number) SELECT '', '', 0 FROM DUAL WHERE 1 = 0");
    sqlx::raw_sql(AssertSqlSafe(no_row)).execute(conn).await.map(drop).map_err(fault)
}

/// The server's version, and a finding for each setting that weakens a promise.
pub(crate) async fn health(conn: &mut MySqlConnection, names: &TableNames) -> Result<Health> {
    let sql = format!(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', {})",
        cluster::variables()
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut *conn).await.map_err(fault)?;
    let mut health = Health::new().role("primary");
    if let Some(split) = other_tables::namespace_in_both(conn, names).await.map_err(fault)? {
        health = health.finding(split.finding());
    }
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
