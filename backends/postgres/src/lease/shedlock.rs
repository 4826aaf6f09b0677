//! ShedLock's table on PostgreSQL.

use dlock_contract::{Error, ErrorKind, Result};
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
        let create = create(&table).replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1);
        let created = sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault);
        place = place_of(conn, of).await?;
        match created {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                return Err(missing(&table, error.kind()));
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
    let table = of.in_statement(QUOTE);
    let sql = format!(
        "SELECT a.attname::text, t.typname::text, a.atttypmod, c.relpersistence = 'p' AND c.relkind IN ('r', 'p'), \
            i.indrelid IS NOT NULL \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid \
            LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique AND i.indnatts = 1 AND i.indpred IS NULL \
                AND a.attnum = i.indkey[0] \
         WHERE c.oid = to_regclass('{table}') AND a.attnum > 0 AND NOT a.attisdropped"
    );
    // As one message: a pooler could give the parts of a prepared statement to different sessions.
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)?;
    let mut usable_columns = 0;
    for row in &rows {
        usable_columns += usize::from(is_usable(row).map_err(fault)?);
    }
    if usable_columns == 4 { Ok(()) } else { Err(missing(&table, &ErrorKind::SchemaMismatch)) }
}

/// Whether this is one of the four columns, with a type that loses nothing. A time with a zone would depend on the session.
fn is_usable(row: &PgRow) -> sqlx::Result<bool> {
    let (name, column_type, size): (String, String, i32) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (is_kept, is_unique): (bool, bool) = (row.try_get(3)?, row.try_get(4)?);
    let is_text = |least: i32| column_type == "text" || column_type == "varchar" && (size < 0 || size - 4 >= least);
    Ok(is_kept
        && match name.as_str() {
            "name" => is_text(64) && is_unique,
            "lock_until" | "locked_at" => column_type == "timestamp" && !(0..3).contains(&size),
            "locked_by" => is_text(100),
            _ => false,
        })
}

fn create(table: &str) -> String {
    CREATE.trim().replacen("CREATE TABLE shedlock", &format!("CREATE TABLE {table}"), 1)
}

fn missing(table: &str, column_type: &ErrorKind) -> Error {
    let text = match column_type {
        ErrorKind::PermissionDenied => "the account sees no such table and may not make it",
        _ => "it is missing, unlogged, or has no such columns",
    };
    Error::new(
        column_type.clone(),
        format!(
            "ShedLock's table {table}: {text}; let shedlock_create=yes in the URL create it, or do it: {}",
            create(table)
        ),
    )
}
