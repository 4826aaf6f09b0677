//! Finds dlock's tables in other schemas or under other prefixes. A namespace that is locked in two sets of tables has two
//! locks for one key, unless they are named locks, or rows of one table of the user.

use dlock_contract::Result;
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
    SELECT m.name, m.word = o.word AND (m.word LIKE 'named%' OR m.word LIKE '%:%') \
    FROM ONLY {other} o JOIN {own} m ON m.name = o.name WHERE m.name LIKE 'way:%' LIMIT 1";

/// A row by which the same named locks are taken with another table.
const NAMED_TOO: &str = "SELECT 1 FROM ONLY {other} WHERE name = $1 AND word = $2";

/// The most tables that one probe reads.
const MOST_OF_A_PROBE: usize = 16;

/// A namespace that other tables have too.
pub(crate) async fn namespace_in_both(conn: &mut PgConnection, names: &TableNames) -> Result<Option<SplitNamespace>> {
    let Some((other, row)) = first_row(conn, names, IN_BOTH, &[], MOST_OF_A_PROBE).await? else { return Ok(None) };
    let name: String = row.try_get(0).map_err(fault)?;
    let namespace = name.trim_start_matches("way:").to_owned();
    Ok(Some(SplitNamespace { namespace, other, has_same_locks: row.try_get(1).map_err(fault)? }))
}

/// Another table that has the row `name` with this word.
pub(crate) async fn with_named_locks(
    conn: &mut PgConnection,
    names: &TableNames,
    (name, word): (&str, &str),
) -> Result<Option<String>> {
    Ok(first_row(conn, names, NAMED_TOO, &[name, word], usize::MAX).await?.map(|(other, _)| other))
}

/// The first of up to `most` other tables in which `select` finds a row, and this row.
async fn first_row(
    conn: &mut PgConnection,
    names: &TableNames,
    select: &str,
    values: &[&str],
    most: usize,
) -> Result<Option<(String, PgRow)>> {
    let own = names.full(META);
    let rows =
        sqlx::raw_sql(AssertSqlSafe(OTHERS.replace("{own}", &own))).fetch_all(&mut *conn).await.map_err(fault)?;
    for row in rows.iter().take(most) {
        let other: String = row.try_get(0).map_err(fault)?;
        let sql = AssertSqlSafe(select.replace("{other}", &other).replace("{own}", &own));
        let found = match values {
            // Behind a pooler, a statement that is prepared may be run in another session.
            [] => sqlx::raw_sql(sql).fetch_optional(&mut *conn).await,
            _ => {
                let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind((*value).to_owned()));
                query.persistent(false).fetch_optional(&mut *conn).await
            }
        };
        match found {
            Ok(None) => {}
            Ok(Some(row)) => return Ok(Some((other, row))),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(fault(error)),
        }
    }
    Ok(None)
}

/// Whether somebody has dropped a table since it was listed.
fn is_gone(error: &sqlx::Error) -> bool {
    matches!(state(error).as_deref(), Some("42P01" | "3F000"))
}
