//! Finds dlock's tables in other schemas or under other prefixes. A namespace that is locked in two sets of tables has two
//! locks for one key, unless they are named locks, or rows of one table of the user.

use dlock_contract::{Error, Result};
use dlock_sql::{META, SplitNamespace, TableNames};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::{fault, state};

/// The other tables that have the form of dlock's table of settings, and the owner of ours. No table of another owner is read: the
/// server may run code of that owner then, such as a policy, with the rights of the reader. Temporary tables belong to one session.
const OTHERS: &str = "\
    SELECT c.oid::regclass::text FROM pg_class c \
    WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.relname LIKE '%meta' AND NOT c.relrowsecurity \
        AND c.relowner = (SELECT relowner FROM pg_class WHERE oid = to_regclass('{own}')) AND c.oid <> to_regclass('{own}') \
        AND has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') \
        AND ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 \
            AND NOT a.attisdropped ORDER BY a.attnum) = ARRAY['name', 'word', 'number'] \
        AND ARRAY(SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 \
            AND NOT a.attisdropped ORDER BY a.attnum) = ARRAY['text'::regtype, 'text'::regtype, 'bigint'::regtype]::oid[] \
    ORDER BY 1";

/// A row that both tables have, and whether its locks are the same ones in both.
const IN_BOTH: &str = "\
    SELECT '{text}', m.name, m.word = o.word AND (m.word LIKE 'named%' OR m.word LIKE '%:%') \
    FROM ONLY {other} o JOIN {own} m ON m.name = o.name WHERE m.name LIKE 'way:%'";

/// A row by which the same named locks are taken with another table.
const NAMED_TOO: &str = "SELECT '{text}' FROM ONLY {other} WHERE name = $1 AND word = $2";

/// The tables of one statement, and the most that a probe reads. A statement locks each of them and its index, and a server has room for
/// 64 locks of each session on average.
const TABLES_AT_ONCE: usize = 50;

/// A namespace that other tables have too.
pub(crate) async fn namespace_in_both(conn: &mut PgConnection, names: &TableNames) -> Result<Option<SplitNamespace>> {
    let found = match first_row(conn, names, IN_BOTH, &[], 1).await {
        // A store is ready also while another table is being changed.
        Err(error) if is_changed(&error) => return Ok(None),
        found => found.map_err(fault)?,
    };
    let Some(row) = found else { return Ok(None) };
    let name: String = row.try_get(1).map_err(fault)?;
    Ok(Some(SplitNamespace {
        namespace: name.trim_start_matches("way:").to_owned(),
        other: row.try_get(0).map_err(fault)?,
        has_same_locks: row.try_get(2).map_err(fault)?,
    }))
}

/// Another table that has the row `name` with this word.
pub(crate) async fn with_named_locks(
    conn: &mut PgConnection,
    names: &TableNames,
    (name, word): (&str, &str),
) -> Result<Option<String>> {
    let row = first_row(conn, names, NAMED_TOO, &[name, word], usize::MAX).await.map_err(|error| {
        if !is_changed(&error) {
            return fault(error);
        }
        let text = "a table of dlock's settings in another schema, or with another prefix, is being changed";
        Error::outage(text).because(error)
    })?;
    row.map(|row| row.try_get(0).map_err(fault)).transpose()
}

/// The first row that `select` finds in any other table, of those in so many statements.
async fn first_row(
    conn: &mut PgConnection,
    names: &TableNames,
    select: &str,
    values: &[&str],
    statements: usize,
) -> sqlx::Result<Option<PgRow>> {
    match read_others(conn, names, select, values, statements).await {
        Err(error) if is_gone(&error) => read_others(conn, names, select, values, statements).await,
        found => found,
    }
}

async fn read_others(
    conn: &mut PgConnection,
    names: &TableNames,
    select: &str,
    values: &[&str],
    statements: usize,
) -> sqlx::Result<Option<PgRow>> {
    let own = names.full(META);
    let rows = sqlx::raw_sql(AssertSqlSafe(OTHERS.replace("{own}", &own))).fetch_all(&mut *conn).await?;
    let others = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<Vec<String>>>()?;
    for others in others.chunks(TABLES_AT_ONCE).take(statements) {
        let selects = others.iter().map(|other| {
            select.replace("{text}", &other.replace('\'', "''")).replace("{other}", other).replace("{own}", &own)
        });
        let sql = AssertSqlSafe(selects.collect::<Vec<_>>().join(" UNION ALL ") + " LIMIT 1");
        let found = match values {
            // Behind a pooler, a statement that is prepared may be run in another session.
            [] => sqlx::raw_sql(sql).fetch_optional(&mut *conn).await?,
            _ => {
                let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind((*value).to_owned()));
                query.persistent(false).fetch_optional(&mut *conn).await?
            }
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether somebody has dropped a table since it was listed.
fn is_gone(error: &sqlx::Error) -> bool {
    matches!(state(error).as_deref(), Some("42P01" | "3F000"))
}

/// Whether somebody drops or changes a table in this moment.
fn is_changed(error: &sqlx::Error) -> bool {
    is_gone(error) || state(error).as_deref() == Some("55P03")
}
