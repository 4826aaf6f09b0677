//! Questions to the server's catalogue about one table.

use sqlx::AssertSqlSafe;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use crate::server::fault::number;

/// The rows that the catalogue has of a table. None: there is no such table, or the account may not see it.
///
/// `{itself}` in the query stands for a join of the table, of which no row is read. The statement then waits for a session that
/// makes or changes the table. Without it, MariaDB's views leave such a table out, as if it were missing.
pub(crate) async fn rows_of(conn: &mut MySqlConnection, table: &str, query: &str) -> sqlx::Result<Vec<MySqlRow>> {
    let itself = format!("LEFT JOIN {table} itself ON 1 = 0");
    let asked = sqlx::raw_sql(AssertSqlSafe(query.replace("{itself}", &itself))).fetch_all(&mut *conn).await;
    match asked.as_ref().err().and_then(number) {
        Some(1146) => Ok(Vec::new()),
        // The account may not read the table, but it may have other rights on it: ask without the join.
        Some(1142) => sqlx::raw_sql(AssertSqlSafe(query.replace("{itself}", ""))).fetch_all(conn).await,
        _ => asked,
    }
}
