//! Looks at the table whose rows are locked.

use dlock_contract::{Error, ErrorKind, Result};
use dlock_sql::{RowKind, RowTable};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::fault;

/// The words of the server's catalogue about a column. An index of more columns, of some rows or of an expression makes no row the only
/// one of its key.
const COLUMN_QUERY: &str = "\
    SELECT c.relnamespace::regnamespace || '.' || c.relname, format_type(a.atttypid, -1), c.relkind::text, EXISTS ( \
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
            AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) \
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped AND a.attnum > 0 \
    WHERE c.oid = to_regclass($1) AND a.attname = $2";

/// The type of the column that names rows, and its full name.
///
/// # Errors
/// Where a row of it would lock nothing, or more than itself.
pub(super) async fn kind_of(conn: &mut PgConnection, table: &RowTable) -> Result<(RowKind, String)> {
    if !table.is_own {
        return Ok((RowKind::Name, String::new()));
    }
    let (name, column) = (&table.name, &table.column);
    let asked = sqlx::query(COLUMN_QUERY).bind(quoted(table)).bind(column.as_str()).fetch_optional(&mut *conn);
    let Some(row) = asked.await.map_err(fault)? else {
        return Err(unfit(format!("there is no table `{name}` with a column `{column}` that this account may see")));
    };
    let place: String = row.try_get(0).map_err(fault)?;
    let data: String = row.try_get(1).map_err(fault)?;
    let kind: String = row.try_get(2).map_err(fault)?;
    if !matches!(kind.as_str(), "r" | "p") {
        return Err(unfit(format!(
            "`{name}` is no ordinary table, so its rows cannot be locked: a view or a foreign table"
        )));
    }
    if !row.try_get::<bool, _>(3).map_err(fault)? {
        return Err(unfit(format!(
            "the column `{column}` of `{name}` has no unique index of its own, so one key would be several rows: add one"
        )));
    }
    let kind = match data.as_str() {
        "smallint" | "integer" | "bigint" => RowKind::Number,
        "text" | "character varying" => RowKind::Text,
        "uuid" => RowKind::Uuid,
        other => {
            return Err(unfit(format!(
                "the column `{column}` of `{name}` is of the type `{other}`: rows are found by a whole number, a text or a UUID"
            )));
        }
    };
    let probe = format!("SELECT 1 FROM {} WHERE false FOR UPDATE", quoted(table));
    sqlx::raw_sql(AssertSqlSafe(probe)).execute(conn).await.map_err(fault)?;
    Ok((kind, table.place(&format!("{place}.{column}"))))
}

/// The names are letters, digits and underscores, so nothing in them ends the quotes.
pub(super) fn quoted(table: &RowTable) -> String {
    match &table.schema {
        Some(schema) => format!("\"{schema}\".\"{}\"", table.name),
        None => format!("\"{}\"", table.name),
    }
}

fn unfit(text: String) -> Error {
    Error::new(ErrorKind::SchemaMismatch, text)
}
