//! Tables of dlock under another prefix: a namespace that has a way there too is in two parts.

use dlock_sql::{META, TableNames};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::server::fault::number;

/// Other tables of the database that have the end of the name of dlock's table of settings.
const OTHERS: &str = "\
    SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name LIKE '%meta' AND table_name <> '{own}' ORDER BY 1 LIMIT 16";

/// A row that both tables have. Named locks of the two exclude each other, so they are left out.
const IN_BOTH: &str = "\
    SELECT CAST(o.name AS CHAR) FROM `{other}` o JOIN {own} m ON m.name = o.name \
    WHERE o.name LIKE 'way:%' AND NOT (o.word LIKE 'named%' AND m.word LIKE 'named%') ORDER BY 1 LIMIT 1";

/// The errors of a table that is another program's or has gone, or that the account may not read.
const NOT_DLOCKS: [u16; 6] = [1054, 1142, 1143, 1146, 1347, 1356];

/// A namespace whose locks other tables have too, and one of these tables.
pub(crate) async fn namespace_in_both(
    conn: &mut MySqlConnection,
    names: &TableNames,
) -> sqlx::Result<Option<(String, String)>> {
    let own = names.in_text(META);
    let others = sqlx::raw_sql(AssertSqlSafe(OTHERS.replace("{own}", &own))).fetch_all(&mut *conn).await?;
    for other in others {
        let other: String = other.try_get(0)?;
        let sql = IN_BOTH.replace("{other}", &other.replace('`', "``")).replace("{own}", &own);
        match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut *conn).await {
            Ok(None) => {}
            Ok(Some(row)) => {
                let name: String = row.try_get(0)?;
                return Ok(Some((name.trim_start_matches("way:").to_owned(), other)));
            }
            Err(error) if number(&error).is_some_and(|number| NOT_DLOCKS.contains(&number)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
