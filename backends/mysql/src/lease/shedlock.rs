//! ShedLock's table on MySQL and MariaDB.

use dlock_contract::{Error, ErrorKind, Result};
use dlock_sql::{ShedlockTable, ShedlockWords};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;

const CREATE: &str = include_str!("../../layouts/shedlock.sql");

const QUOTE: char = '`';

/// The SQL of ShedLock's table, for this table.
///
/// The columns of ShedLock's row are set only from that row and from bound values, because a server does not promise in which
/// order it sets the columns of two tables.
pub(super) fn words(table: ShedlockTable) -> ShedlockWords {
    ShedlockWords {
        table,
        quote: QUOTE,
        change: "UPDATE {locks}{by_name} JOIN {theirs_table}{by_name} SET {set_theirs}, {set_ours} \
                 WHERE {own} AND {theirs} AND {if}{tells}",
        abandon: "UPDATE {locks}{by_name} JOIN {theirs_table}{by_name} \
                  SET lock_until = CASE WHEN {tail} = {of_owner} THEN {free} ELSE lock_until END, {set_ours} \
                  WHERE k = $1 AND name = $1 AND {if}",
        now: "UTC_TIMESTAMP(6)",
        free: "UTC_TIMESTAMP(3)",
        until: "TIMESTAMPADD(MICROSECOND, {time} + 1000, UTC_TIMESTAMP(6))",
        left: "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until)",
        locked_us: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at)",
        tail: "RIGHT(locked_by, 17)",
        of_owner: "CONCAT('#', LEFT(SHA2($2, 256), 16))",
        of_row: "CONCAT('#', hold)",
        of_hold: "CONCAT('#', $2)",
        name_bytes: "CAST(CONVERT(name USING utf8mb4) AS BINARY)",
    }
}

/// Creates the table if it is missing and the URL asks for it, checks its columns, and tests the rights. Returns its full name.
pub(super) async fn prepare(conn: &mut MySqlConnection, of: &ShedlockTable) -> Result<String> {
    let table = of.in_statement(QUOTE);
    let mut place = place_of(conn, of).await?;
    if place.is_none() && of.is_made {
        let create = create(&table).replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1);
        match sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault) {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                return Err(missing(&table, error.kind()));
            }
            created => {
                created?;
            }
        }
        place = place_of(conn, of).await?;
    }
    check(conn, of).await?;
    let probe = format!("{:016x}", fastrand::u64(..));
    for sql in [
        "START TRANSACTION".to_owned(),
        format!("INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES ('{probe}', NOW(), NOW(), '')"),
        format!("UPDATE {table} SET locked_by = 'dlock' WHERE name = '{probe}'"),
        "ROLLBACK".to_owned(),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.map_err(fault)?;
    }
    Ok(place.unwrap_or_default())
}

/// The full name of the table, if it is there.
///
/// # Errors
/// For a table whose name differs in case alone, unless the URL names this one.
async fn place_of(conn: &mut MySqlConnection, of: &ShedlockTable) -> Result<Option<String>> {
    let (schema, name) = (schema_of(of), &of.name);
    let sql = format!(
        "SELECT CAST(CONCAT(table_schema, '.', table_name) AS CHAR), \
            CAST(@@lower_case_table_names <> 0 OR CAST(table_name AS BINARY) = '{name}' AS SIGNED) \
         FROM information_schema.tables WHERE table_schema = {schema} AND LOWER(table_name) = LOWER('{name}')"
    );
    let (mut found, mut twins) = (None, Vec::new());
    for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)? {
        let place: String = row.try_get(0).map_err(fault)?;
        match row.try_get_unchecked::<i64, _>(1).map_err(fault)? {
            0 => twins.push(place),
            _ => found = Some(place),
        }
    }
    let is_right = twins.is_empty() || found.is_some() && of.is_named;
    if is_right { Ok(found) } else { Err(of.other_than(&twins)) }
}

fn schema_of(of: &ShedlockTable) -> String {
    of.schema.as_ref().map_or_else(|| "DATABASE()".to_owned(), |schema| format!("'{schema}'"))
}

/// Checks that the table still exists and can hold locks. It may have more columns than the four.
pub(super) async fn check(conn: &mut MySqlConnection, of: &ShedlockTable) -> Result<()> {
    let (schema, name) = (schema_of(of), &of.name);
    // Each view has the names as constants, or MariaDB opens every table of the server.
    let sql = format!(
        "SELECT CAST(c.column_name AS CHAR), CAST(c.data_type AS CHAR), CAST(c.column_key AS CHAR), \
            CAST(COALESCE(c.datetime_precision, c.character_maximum_length, 0) AS SIGNED), CAST(t.engine AS CHAR), \
            CAST((SELECT COUNT(*) FROM information_schema.statistics s WHERE s.table_schema = {schema} \
                AND s.table_name = '{name}' AND s.index_name = 'PRIMARY') AS SIGNED) \
         FROM information_schema.columns c JOIN information_schema.tables t \
         WHERE c.table_schema = {schema} AND c.table_name = '{name}' AND t.table_schema = {schema} AND t.table_name = '{name}'"
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await.map_err(fault)?;
    let mut usable_columns = 0;
    for row in &rows {
        usable_columns += usize::from(is_usable(row).map_err(fault)?);
    }
    if usable_columns == 4 { Ok(()) } else { Err(missing(&of.in_statement(QUOTE), &ErrorKind::SchemaMismatch)) }
}

/// Whether this is one of the four columns, with a type that loses nothing.
fn is_usable(row: &MySqlRow) -> sqlx::Result<bool> {
    let (name, column_type, key): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (size, engine, keys): (i64, Option<String>, i64) = (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
    let is_kept = engine.is_some_and(|engine| engine.eq_ignore_ascii_case("innodb"));
    let is_text = column_type == "varchar" || column_type == "char";
    let is_time = column_type == "timestamp" || column_type == "datetime";
    Ok(is_kept
        && match name.to_ascii_lowercase().as_str() {
            "name" => is_text && size >= 64 && key == "PRI" && keys == 1,
            "lock_until" | "locked_at" => is_time && size >= 3,
            "locked_by" => is_text && size >= 100,
            _ => false,
        })
}

fn create(table: &str) -> String {
    CREATE.trim().replacen("CREATE TABLE shedlock", &format!("CREATE TABLE {table}"), 1)
}

fn missing(table: &str, column_type: &ErrorKind) -> Error {
    let text = match column_type {
        ErrorKind::PermissionDenied => "the account sees no such table and may not make it",
        _ => "it is missing, has no such columns, or is not InnoDB",
    };
    Error::new(
        column_type.clone(),
        format!(
            "ShedLock's table {table}: {text}; let shedlock_create=yes in the URL create it, or do it: {}",
            create(table)
        ),
    )
}
