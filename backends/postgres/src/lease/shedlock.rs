//! ShedLock's table on PostgreSQL.

use std::fmt;

use dlock_contract::{ErrorKind, Health, Result};
use dlock_sql::{ShedlockTable, ShedlockWords};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;

const CREATE: &str = include_str!("../../layouts/shedlock.sql");

const QUOTE: char = '"';

/// The SQL of ShedLock's table, for this table.
pub(super) fn words(table: ShedlockTable) -> ShedlockWords {
    ShedlockWords {
        table,
        quote: QUOTE,
        change: "WITH own AS (SELECT * FROM {locks} WHERE {own} FOR UPDATE), \
                 shed AS (UPDATE {theirs_table} SET {set_theirs} FROM own WHERE {theirs} AND {if} RETURNING k AS found) \
                 UPDATE {locks} SET {set_ours} FROM shed WHERE k = found{tells}",
        abandon: "WITH own AS (SELECT * FROM {locks} WHERE k = $1 FOR UPDATE), \
                  shed AS (UPDATE {theirs_table} SET lock_until = {free} FROM own WHERE name = $1 AND {mine}) \
                  UPDATE {locks} SET {set_ours} FROM (SELECT k AS found FROM own) AS locked WHERE k = found AND {if}",
        now: "timezone('utc', statement_timestamp())",
        free: "date_trunc('milliseconds', timezone('utc', statement_timestamp()))",
        until: "timezone('utc', statement_timestamp()) + ({time} + 1000) * interval '1 microsecond'",
        left: "(extract(epoch FROM lock_until - timezone('utc', statement_timestamp())) * 1000000)::bigint",
        locked_us: "(extract(epoch FROM locked_at) * 1000000)::bigint",
        tail: "right(locked_by, 17) COLLATE \"C\"",
        of_owner: "'#' || left(encode(sha256($2), 'hex'), 16)",
        of_row: "'#' || hold",
        of_hold: "'#' || $2",
        name_bytes: "name COLLATE \"C\"",
    }
}

/// Creates the table if it is missing and the URL asks for it, checks its columns, and tests the rights. Returns its full name.
pub(super) async fn prepare(conn: &mut PgConnection, of: &ShedlockTable) -> Result<String> {
    let table = of.in_statement(QUOTE);
    let mut place = place_of(conn, of).await?;
    if place.is_none() && of.is_made {
        let create = of.create(QUOTE, CREATE).replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1);
        let created = sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault);
        place = place_of(conn, of).await?;
        match created {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                return Err(of.missing(QUOTE, CREATE, true));
            }
            // If two programs create the table at once, one of them may get an error. Then only the table's columns count.
            Err(error) if place.is_none() => return Err(error),
            _ => {}
        }
    }
    check(conn, of).await?;
    let probe = format!("{:016x}", fastrand::u64(..));
    let probe = format!(
        "BEGIN; \
         INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES ('{probe}', now(), now(), ''); \
         UPDATE {table} SET locked_by = 'dlock' WHERE name = '{probe}'; \
         SELECT 1 FROM {table} WHERE name = '{probe}'; \
         ROLLBACK"
    );
    let probe = sqlx::raw_sql(AssertSqlSafe(probe)).execute(&mut *conn).await;
    if probe.is_err() {
        // Without this, the transaction would stay open.
        let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
    }
    probe.map(|_| place.unwrap_or_default()).map_err(fault)
}

/// The full name of the table, if it is there.
///
/// # Errors
/// For a table whose name differs in case or schema alone, unless this one's schema is said.
async fn place_of(conn: &mut PgConnection, of: &ShedlockTable) -> Result<Option<String>> {
    let sql = format!(
        "SELECT n.nspname::text, c.relname::text, COALESCE(c.oid = to_regclass('{}'), false) \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE lower(c.relname) = lower('{}') AND c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_'",
        of.in_statement(QUOTE),
        of.name
    );
    let (mut found, mut twins) = (None, Vec::new());
    // As one message: a pooler could give the parts of a prepared statement to different sessions.
    for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)? {
        let (schema, name): (String, String) = (row.try_get(0).map_err(fault)?, row.try_get(1).map_err(fault)?);
        if row.try_get(2).map_err(fault)? {
            found = Some(format!("{schema}.{name}"));
        } else if !of.is_made || of.schema.as_ref().is_none_or(|its| *its == schema) {
            twins.push(format!("{schema}.{name}"));
        }
    }
    let is_right = twins.is_empty() || found.is_some() && of.schema.is_some();
    if is_right { Ok(found) } else { Err(of.other_than(&twins)) }
}

/// Checks that the table still exists and can hold locks. It may have more columns than the four.
pub(super) async fn check(conn: &mut PgConnection, of: &ShedlockTable) -> Result<()> {
    let is_unique = "FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid";
    let sql = format!(
        "SELECT a.attname::text, b.typname::text, CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END, \
            format_type(a.atttypid, a.atttypmod), c.relkind IN ('r', 'p'), c.relpersistence = 'p', \
            EXISTS (SELECT {is_unique} AND i.indnatts = 1 AND i.indpred IS NULL AND a.attnum = i.indkey[0]), \
            (SELECT i.indexrelid::regclass::text {is_unique} AND NOT i.indimmediate LIMIT 1) \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid \
            JOIN pg_type b ON b.oid = COALESCE(NULLIF(t.typbasetype, 0), t.oid) \
         WHERE c.oid = to_regclass('{}') AND a.attnum > 0 AND NOT a.attisdropped",
        of.in_statement(QUOTE)
    );
    // As one message: a pooler could give the parts of a prepared statement to different sessions.
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)?;
    let mut columns = Vec::new();
    for row in &rows {
        let column = column_of(row).map_err(fault)?;
        let unfit = |why: &str, mend: &str| Err(of.unfit(QUOTE, why, mend));
        match (row.try_get(4).map_err(fault)?, row.try_get(5).map_err(fault)?) {
            (false, _) => return unfit("it is no ordinary table, such as a view", "RENAME TO another_name"),
            (_, false) => return unfit("it is UNLOGGED, so it loses its rows when the server fails", "SET LOGGED"),
            (true, true) => {}
        }
        if column.0 == "name" && !row.try_get::<bool, _>(6).map_err(fault)? {
            return unfit("its column `name` has no unique index of its own", "ADD UNIQUE (name)");
        }
        if let Some(index) = row.try_get::<Option<String>, _>(7).map_err(fault)? {
            let why = format!(
                "its unique constraint `{index}` is DEFERRABLE, so no insert can leave out a row that is there"
            );
            return unfit(&why, &format!("DROP CONSTRAINT {index}, ADD UNIQUE (name)"));
        }
        columns.push(column);
    }
    if columns.is_empty() { Err(of.missing(QUOTE, CREATE, false)) } else { of.check_columns(QUOTE, &columns, judge) }
}

/// Adds the findings about the rows.
pub(super) async fn told_in(health: Health, conn: &mut PgConnection, of: &ShedlockTable) -> Result<Health> {
    let later = "timezone('utc', statement_timestamp()) + INTERVAL '1 minute'";
    let sql = format!("SELECT COUNT(*) FROM {} WHERE locked_at > {later}", of.in_statement(QUOTE));
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await.map_err(fault)?;
    Ok(of.told_in(health, row.try_get(0).map_err(fault)?))
}

/// A column's type: of a domain, the type below.
struct ColumnType {
    base: String,
    size: i32,
    shown: String,
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn column_of(row: &PgRow) -> sqlx::Result<(String, ColumnType)> {
    let column = ColumnType { base: row.try_get(1)?, size: row.try_get(2)?, shown: row.try_get(3)? };
    Ok((row.try_get(0)?, column))
}

/// A type that loses nothing is right. A time with a zone would depend on the session.
fn judge(column: &str, found: Option<&ColumnType>) -> Option<(&'static str, String)> {
    let is = |right: &dyn Fn(&ColumnType) -> bool| found.is_some_and(right);
    let is_text = |least: i32| {
        is(&|found| found.base == "text" || found.base == "varchar" && (found.size < 0 || found.size - 4 >= least))
    };
    let (is_right, need, data) = match column {
        "name" => (is_text(64), "TEXT or VARCHAR with room for 64 characters", "VARCHAR(64)"),
        "locked_by" => (is_text(100), "TEXT or VARCHAR with room for 100 characters", "VARCHAR(255)"),
        _ => {
            let is_time = is(&|found| found.base == "timestamp" && !(0..3).contains(&found.size));
            (is_time, "TIMESTAMP without a time zone, with at least three decimals", "TIMESTAMP")
        }
    };
    let using = if is(&|found| found.base == "timestamptz") {
        format!(" USING {column} AT TIME ZONE 'UTC'")
    } else {
        String::new()
    };
    let mend = match found {
        Some(_) => format!("ALTER {column} TYPE {data}{using}"),
        None => format!("ADD {column} {data} NOT NULL"),
    };
    (!is_right).then_some((need, mend))
}
