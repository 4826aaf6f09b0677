//! ShedLock's table on MySQL and MariaDB.

use std::fmt;

use dlock_contract::{ErrorKind, Health, Result};
use dlock_sql::{ShedlockTable, ShedlockWords};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::catalogue;
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
        let create = of.create(QUOTE, CREATE).replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1);
        match sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await.map_err(fault) {
            Err(error) if *error.kind() == ErrorKind::PermissionDenied => {
                return Err(of.missing(QUOTE, CREATE, true));
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
        "SELECT CAST(c.column_name AS CHAR), CAST(c.data_type AS CHAR), CAST(c.column_type AS CHAR), \
            CAST(COALESCE(c.datetime_precision, c.character_maximum_length, 0) AS SIGNED), CAST(t.engine AS CHAR), \
            CAST(c.column_key = 'PRI' AS SIGNED), CAST((SELECT COUNT(*) FROM information_schema.statistics s \
                WHERE s.table_schema = {schema} AND s.table_name = '{name}' AND s.index_name = 'PRIMARY') AS SIGNED) \
         FROM information_schema.columns c JOIN information_schema.tables t {{itself}} \
         WHERE c.table_schema = {schema} AND c.table_name = '{name}' AND t.table_schema = {schema} AND t.table_name = '{name}'"
    );
    let rows = catalogue::rows_of(conn, &of.in_statement(QUOTE), &sql).await.map_err(fault)?;
    let mut columns = Vec::new();
    for row in &rows {
        let column = column_of(row).map_err(fault)?;
        let engine: Option<String> = row.try_get(4).map_err(fault)?;
        if !engine.as_ref().is_some_and(|engine| engine.eq_ignore_ascii_case("innodb")) {
            let why =
                format!("its engine is {}, and must be InnoDB", engine.as_deref().unwrap_or("none, as of a view"));
            return Err(of.unfit(QUOTE, &why, "ENGINE = InnoDB"));
        }
        let key: [i64; 2] = [row.try_get_unchecked(5).map_err(fault)?, row.try_get_unchecked(6).map_err(fault)?];
        if column.0.eq_ignore_ascii_case("name") && key != [1, 1] {
            let mend = if key[1] == 0 { "ADD PRIMARY KEY (name)" } else { "DROP PRIMARY KEY, ADD PRIMARY KEY (name)" };
            return Err(of.unfit(QUOTE, "its column `name` alone is not the primary key", mend));
        }
        columns.push(column);
    }
    if columns.is_empty() { Err(of.missing(QUOTE, CREATE, false)) } else { of.check_columns(QUOTE, &columns, judge) }
}

/// Adds the findings about the rows, and whether the server writes a `TIMESTAMP` in a zone that is not UTC.
pub(super) async fn told_in(health: Health, conn: &mut MySqlConnection, of: &ShedlockTable) -> Result<Health> {
    // In winter the time of London is UTC.
    let offset = |time: &str| format!("TIMESTAMPDIFF(SECOND, '1970-01-01', '{time}') <> UNIX_TIMESTAMP('{time}')");
    let (schema, name) = (schema_of(of), &of.name);
    let sql = format!(
        "SELECT CAST((SELECT COUNT(*) FROM {} WHERE locked_at > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE) AS SIGNED), \
            CAST(({} OR {}) AND EXISTS (SELECT * FROM information_schema.columns WHERE table_schema = {schema} \
                AND table_name = '{name}' AND column_name IN ('lock_until', 'locked_at') AND data_type = 'timestamp') AS SIGNED)",
        of.in_statement(QUOTE),
        offset("2026-01-01"),
        offset("2026-07-01"),
    );
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(conn).await.map_err(fault)?;
    let health = of.told_in(health, row.try_get_unchecked(0).map_err(fault)?);
    Ok(match row.try_get_unchecked::<i64, _>(1).map_err(fault)? {
        0 => health,
        _ => health.finding(format!(
            "ShedLock's table has TIMESTAMP columns, and the server's time zone is not UTC: a Java node whose sessions have another \
             zone takes locks a second time, and in the hour that summer time leaves out no lock is granted (error 1292). Set the \
             server's time_zone to '+00:00', or, while no program locks in it: ALTER TABLE {} MODIFY lock_until DATETIME(3) NOT NULL, \
             MODIFY locked_at DATETIME(3) NOT NULL",
            of.in_statement(QUOTE)
        )),
    })
}

/// The type of a column.
struct ColumnType {
    data: String,
    size: i64,
    shown: String,
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn column_of(row: &MySqlRow) -> sqlx::Result<(String, ColumnType)> {
    let column = ColumnType { data: row.try_get(1)?, size: row.try_get(3)?, shown: row.try_get(2)? };
    Ok((row.try_get(0)?, column))
}

/// A type that loses nothing is right.
fn judge(column: &str, found: Option<&ColumnType>) -> Option<(&'static str, String)> {
    let is = |types: [&str; 2], least: i64| {
        found.is_some_and(|found| found.size >= least && types.contains(&found.data.as_str()))
    };
    let (is_right, need, data) = match column {
        "name" => (is(["varchar", "char"], 64), "VARCHAR with room for 64 characters", "VARCHAR(64)"),
        "locked_by" => (is(["varchar", "char"], 100), "VARCHAR with room for 100 characters", "VARCHAR(255)"),
        _ => (is(["timestamp", "datetime"], 3), "DATETIME or TIMESTAMP with at least three decimals", "DATETIME(3)"),
    };
    let verb = if found.is_some() { "MODIFY" } else { "ADD" };
    (!is_right).then(|| (need, format!("{verb} {column} {data} NOT NULL")))
}
