//! ShedLock's table on MySQL and MariaDB.

use dlock_contract::{Error, ErrorKind, Result};
use dlock_sql::ShedlockWords;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;

const CREATE: &str = include_str!("../../layouts/shedlock.sql");

/// The SQL of ShedLock's table, for the table with this name.
///
/// The columns of ShedLock's row are set only from that row and from bound values, because a server does not promise in which
/// order it sets the columns of two tables.
pub(super) fn words(table: String) -> ShedlockWords {
    ShedlockWords {
        table: table.into(),
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

/// Creates the table if it is missing, checks its columns, and tests the rights.
pub(super) async fn prepare(conn: &mut MySqlConnection, table: &str) -> Result<()> {
    if !check_table(conn, table).await? {
        let create = create(table).replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1);
        match sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault) {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                return Err(missing(table, error.kind()));
            }
            created => {
                created?;
            }
        }
        check(conn, table).await?;
    }
    let probe = format!("{:016x}", fastrand::u64(..));
    for sql in [
        "START TRANSACTION".to_owned(),
        format!("INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES ('{probe}', NOW(), NOW(), '')"),
        format!("UPDATE {table} SET locked_by = 'dlock' WHERE name = '{probe}'"),
        "ROLLBACK".to_owned(),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.map_err(fault)?;
    }
    Ok(())
}

/// Checks that the table still exists and can hold locks.
pub(super) async fn check(conn: &mut MySqlConnection, table: &str) -> Result<()> {
    if check_table(conn, table).await? { Ok(()) } else { Err(missing(table, &ErrorKind::SchemaMismatch)) }
}

/// Whether the table exists and can hold locks. It may have more columns than the four.
async fn check_table(conn: &mut MySqlConnection, table: &str) -> Result<bool> {
    let (schema, name) =
        table.split_once('.').map_or(("DATABASE()".to_owned(), table), |(schema, name)| (format!("'{schema}'"), name));
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
    if rows.is_empty() {
        return Ok(false);
    }
    let mut usable_columns = 0;
    for row in &rows {
        usable_columns += usize::from(is_usable(row).map_err(fault)?);
    }
    if usable_columns == 4 { Ok(true) } else { Err(missing(table, &ErrorKind::SchemaMismatch)) }
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
    Error::new(column_type.clone(), format!("ShedLock's table {table}: {text}; this creates it: {}", create(table)))
}
