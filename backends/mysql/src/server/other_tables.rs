//! Tables of dlock under another prefix: a namespace that has a way there too is in two parts.

use dlock_sql::{META, SplitNamespace, TableNames};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::number;

/// Other tables of the database with the columns of dlock's table of settings. Views are left out: reading one runs code of
/// somebody else.
const OTHERS: &str = "\
    SELECT CAST(t.table_name AS CHAR) FROM information_schema.tables t \
    WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' AND t.table_name LIKE '%meta' AND t.table_name <> '{own}' \
        AND (SELECT COUNT(*) FROM information_schema.columns c WHERE c.table_schema = DATABASE() \
            AND c.table_name = t.table_name AND c.column_name IN ('name', 'word', 'number')) = 3 ORDER BY 1";

/// A row that both tables have, and whether its locks are the same ones in both.
const IN_BOTH: &str = "\
    SELECT CAST(m.name AS CHAR), m.word = o.word AND (m.word LIKE 'named%' OR m.word LIKE '%:%') \
    FROM `{other}` o JOIN {own} m ON m.name = o.name WHERE m.name LIKE 'way:%' LIMIT 1";

/// A row by which the same named locks are taken with another table.
const NAMED_TOO: &str = "SELECT 1 FROM `{other}` WHERE name = ? AND word = ?";

/// The errors of a table that has gone, or that the account may not read.
const NOT_READ: [u16; 4] = [1054, 1142, 1143, 1146];

/// A namespace that other tables have too.
pub(crate) async fn namespace_in_both(
    conn: &mut MySqlConnection,
    names: &TableNames,
) -> sqlx::Result<Option<SplitNamespace>> {
    let Some((other, row)) = first_row(conn, names, IN_BOTH, &[]).await? else { return Ok(None) };
    let name: String = row.try_get(0)?;
    let namespace = name.trim_start_matches("way:").to_owned();
    Ok(Some(SplitNamespace { namespace, other, has_same_locks: row.try_get_unchecked(1)? }))
}

/// Another table that has the row `name` with this word.
pub(crate) async fn with_named_locks(
    conn: &mut MySqlConnection,
    names: &TableNames,
    (name, word): (&str, &str),
) -> sqlx::Result<Option<String>> {
    Ok(first_row(conn, names, NAMED_TOO, &[name, word]).await?.map(|(other, _)| other))
}

/// The first other table in which `select` finds a row, and this row.
async fn first_row(
    conn: &mut MySqlConnection,
    names: &TableNames,
    select: &str,
    values: &[&str],
) -> sqlx::Result<Option<(String, MySqlRow)>> {
    let own = names.full(META);
    let others = sqlx::raw_sql(AssertSqlSafe(OTHERS.replace("{own}", &own))).fetch_all(&mut *conn).await?;
    for other in others {
        let other: String = other.try_get(0)?;
        let sql = select.replace("{other}", &other.replace('`', "``")).replace("{own}", &own);
        let query = values.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| query.bind(value.to_string()));
        match query.persistent(false).fetch_optional(&mut *conn).await {
            Ok(None) => {}
            Ok(Some(row)) => return Ok(Some((other, row))),
            Err(error) if number(&error).is_some_and(|number| NOT_READ.contains(&number)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
