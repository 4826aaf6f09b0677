//! Finds dlock's tables under other prefixes. A namespace that is locked in two sets of tables has two locks for one key, unless they
//! are named locks, or rows of one table of the user.

use std::collections::BTreeSet;

use dlock_sql::{META, SplitNamespace, TableNames};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::number;

/// The names of the database that end as those of dlock's tables. For a list of names alone MariaDB opens no table.
const NAMES: &str = "\
    SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE() AND ( \
        table_name LIKE '%meta' OR table_name LIKE '%locks' OR table_name LIKE '%named' OR table_name LIKE '%rows')";

/// The ends of the names of the tables of locks, one for each way.
const LOCKS: [&str; 3] = ["locks", "named", "rows"];

/// Whether a name is that of a table. Reading a view runs code of somebody else.
const IS_TABLE: &str = "\
    SELECT 1 FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name = ? AND table_type = 'BASE TABLE'";

/// A row that both tables have, and whether its locks are the same ones in both.
const IN_BOTH: &str = "\
    SELECT CAST(m.name AS CHAR), m.word = o.word AND (m.word LIKE 'named%' OR m.word LIKE '%:%') \
    FROM `{other}` o JOIN {own} m ON m.name = o.name WHERE m.name LIKE 'way:%' LIMIT 1";

/// A row by which the same named locks are taken with another table.
const NAMED_TOO: &str = "SELECT 1 FROM `{other}` WHERE name = ? AND word = ?";

/// The errors of a table that is another program's, has gone, is damaged, or that the account may not read.
const NOT_READ: [u16; 9] = [1054, 1142, 1143, 1146, 1194, 1195, 1812, 1814, 1932];

/// Another session has kept a table for too long.
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// The most tables that one probe reads.
const MOST_OF_A_PROBE: usize = 16;

/// A namespace that other tables have too.
pub(crate) async fn namespace_in_both(
    conn: &mut MySqlConnection,
    names: &TableNames,
) -> sqlx::Result<Option<SplitNamespace>> {
    let found = match first_row(conn, names, IN_BOTH, &[], MOST_OF_A_PROBE).await {
        // A store is ready also while another table is being changed.
        Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => return Ok(None),
        found => found?,
    };
    let Some((other, row)) = found else { return Ok(None) };
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
    Ok(first_row(conn, names, NAMED_TOO, &[name, word], usize::MAX).await?.map(|(other, _)| other))
}

/// The first of up to `most` other tables in which `select` finds a row, and this row.
async fn first_row(
    conn: &mut MySqlConnection,
    names: &TableNames,
    select: &str,
    values: &[&str],
    most: usize,
) -> sqlx::Result<Option<(String, MySqlRow)>> {
    let own = names.full(META);
    let found = sqlx::raw_sql(NAMES).fetch_all(&mut *conn).await?;
    let found = found.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<BTreeSet<String>>>()?;
    // A database of WordPress has thousands of tables `…meta`. Beside one of dlock's there is a table of its locks.
    let is_ours = |other: &&String| {
        let prefix = other.strip_suffix("meta").filter(|_| **other != own);
        prefix.is_some_and(|prefix| LOCKS.iter().any(|locks| found.contains(&format!("{prefix}{locks}"))))
    };
    for other in found.iter().filter(is_ours).take(most) {
        if sqlx::query(IS_TABLE).bind(other).persistent(false).fetch_optional(&mut *conn).await?.is_none() {
            continue;
        }
        let sql = select.replace("{other}", &other.replace('`', "``")).replace("{own}", &own);
        let query = values.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, value| query.bind(value.to_string()));
        match query.persistent(false).fetch_optional(&mut *conn).await {
            Ok(None) => {}
            Ok(Some(row)) => return Ok(Some((other.clone(), row))),
            Err(error) if number(&error).is_some_and(|number| NOT_READ.contains(&number)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
