//! Looks at the table whose rows are locked.

use dlock_contract::{Error, ErrorKind, Result};
use dlock_sql::{RowKind, RowTable};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::catalogue;
use crate::server::fault::fault;

/// The words of the server's catalogue about a column. An index of a part of the column, or of more columns, makes no row the only
/// one of its key. Each view has `{schema}` and `{name}` as constants, or MariaDB opens every table of the server.
const COLUMN_QUERY: &str = "\
    SELECT CAST(CONCAT(t.table_schema, '.', t.table_name, '.', c.column_name) AS CHAR), CAST(LOWER(c.data_type) AS CHAR), CAST(COALESCE(t.engine, '') AS CHAR), CAST(EXISTS ( \
        SELECT 1 FROM information_schema.statistics s \
        WHERE s.table_schema = {schema} AND s.table_name = {name} AND s.column_name = c.column_name \
            AND s.non_unique = 0 AND s.sub_part IS NULL AND 1 = ( \
                SELECT COUNT(*) FROM information_schema.statistics o WHERE o.table_schema = {schema} \
                    AND o.table_name = {name} AND o.index_name = s.index_name)) AS SIGNED) \
    FROM information_schema.columns c JOIN information_schema.tables t {itself} \
    WHERE c.table_schema = {schema} AND c.table_name = {name} AND c.column_name = {column} \
        AND t.table_schema = {schema} AND t.table_name = {name}";

/// The type of the column that names rows, and its full name.
///
/// # Errors
/// Where a row of it would lock nothing, or more than itself.
pub(super) async fn kind_of(conn: &mut MySqlConnection, table: &RowTable) -> Result<(RowKind, String)> {
    if !table.is_own {
        return Ok((RowKind::Name, String::new()));
    }
    let rows = catalogue::rows_of(conn, &quoted(table), &look(table)).await.map_err(fault)?;
    let (name, column) = (&table.name, &table.column);
    let Some(row) = rows.first() else {
        return Err(unfit(format!("there is no table `{name}` with a column `{column}` that this account may see")));
    };
    let place: String = row.try_get(0).map_err(fault)?;
    let data: String = row.try_get(1).map_err(fault)?;
    let engine: String = row.try_get(2).map_err(fault)?;
    let is_unique: i64 = row.try_get_unchecked(3).map_err(fault)?;
    if !engine.eq_ignore_ascii_case("innodb") {
        return Err(unfit(format!(
            "the table `{name}` has no transactions, so its rows cannot be locked: its engine is `{engine}` and must be InnoDB"
        )));
    }
    if is_unique == 0 {
        return Err(unfit(format!(
            "the column `{column}` of `{name}` has no unique index of its own, so locking one key would lock other rows too, or \
             all of them: add one"
        )));
    }
    let kind = match data.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => RowKind::Number,
        "char" | "varchar" => RowKind::Text,
        "uuid" => RowKind::Uuid,
        other => {
            return Err(unfit(format!(
                "the column `{column}` of `{name}` is of the type `{other}`: rows are found by a whole number or by a text"
            )));
        }
    };
    let probe = format!("SELECT 1 FROM {} WHERE `{column}` IS NULL AND 1 = 0 FOR UPDATE", quoted(table));
    sqlx::raw_sql(AssertSqlSafe(probe)).execute(conn).await.map_err(fault)?;
    Ok((kind, table.place(&place)))
}

fn look(table: &RowTable) -> String {
    let schema = table.schema.as_ref().map_or("DATABASE()".to_owned(), |schema| format!("'{schema}'"));
    let named = COLUMN_QUERY.replace("{schema}", &schema).replace("{name}", &format!("'{}'", table.name));
    named.replace("{column}", &format!("'{}'", table.column))
}

/// The names are letters, digits and underscores, so nothing in them ends the quotes.
pub(super) fn quoted(table: &RowTable) -> String {
    match &table.schema {
        Some(schema) => format!("`{schema}`.`{}`", table.name),
        None => format!("`{}`", table.name),
    }
}

fn unfit(text: String) -> Error {
    Error::new(ErrorKind::SchemaMismatch, text)
}
