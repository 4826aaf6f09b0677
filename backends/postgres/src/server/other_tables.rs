//! Tables of dlock in another schema or under another prefix: a namespace that has a way there too is in two parts.

use dlock_sql::{META, TableNames};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::state;

/// The other tables with the columns of dlock's table of settings. Those that the account may not read are left out, and so are
/// temporary ones, which belong to one session.
const OTHERS: &str = "\
    SELECT c.oid::regclass::text FROM pg_class c \
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND c.relname LIKE '%meta' \
        AND c.oid IS DISTINCT FROM to_regclass('{own}') \
        AND has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') \
        AND ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 \
            AND NOT a.attisdropped ORDER BY a.attnum) = ARRAY['name', 'word', 'number'] \
    ORDER BY 1 LIMIT 16";

/// A row that both tables have. Named locks of the two exclude each other, so they are left out.
const IN_BOTH: &str = "\
    SELECT o.name FROM {other} o JOIN {own} m ON m.name = o.name \
    WHERE o.name LIKE 'way:%' AND NOT (o.word LIKE 'named%' AND m.word LIKE 'named%') ORDER BY 1 LIMIT 1";

/// A namespace whose locks other tables have too, and one of these tables.
pub(crate) async fn namespace_in_both(
    conn: &mut PgConnection,
    names: &TableNames,
) -> sqlx::Result<Option<(String, String)>> {
    for other in others(conn, names).await? {
        let sql = IN_BOTH.replace("{other}", &other).replace("{own}", &names.full(META));
        let found = match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut *conn).await {
            Ok(found) => found,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        if let Some(row) = found {
            let name: String = row.try_get(0)?;
            return Ok(Some((name.trim_start_matches("way:").to_owned(), other)));
        }
    }
    Ok(None)
}

/// Other tables by which the row `name` is locked with named locks.
pub(crate) async fn with_named_locks(
    conn: &mut PgConnection,
    names: &TableNames,
    name: &str,
) -> sqlx::Result<Option<String>> {
    for other in others(conn, names).await? {
        let sql = format!("SELECT FROM {other} WHERE name = $1 AND word LIKE 'named%'");
        match sqlx::query(AssertSqlSafe(sql)).bind(name).persistent(false).fetch_optional(&mut *conn).await {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Some(other)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

async fn others(conn: &mut PgConnection, names: &TableNames) -> sqlx::Result<Vec<String>> {
    let sql = OTHERS.replace("{own}", &names.full(META));
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(conn).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Whether somebody has dropped the table since it was found.
fn is_gone(error: &sqlx::Error) -> bool {
    matches!(state(error).as_deref(), Some("42P01" | "3F000"))
}
