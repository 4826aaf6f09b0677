//! `SELECT … FOR UPDATE WAIT 10`, which articles show for MySQL: it is a statement of MariaDB and of Oracle.

use crate::naive::pools;

#[tokio::test]
async fn for_update_wait_is_no_statement_of_mysql() {
    let table = "CREATE TABLE IF NOT EXISTS naive_wait (lock_key VARCHAR(255) PRIMARY KEY)";
    let sql = "SELECT lock_key FROM naive_wait WHERE lock_key = 'a' FOR UPDATE WAIT 10";
    let [mariadb, mysql] = &pools(table, 1).await[..] else { panic!("two servers") };
    sqlx::raw_sql(sql).execute(mariadb).await.unwrap();
    let error = sqlx::raw_sql(sql).execute(mysql).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("42000"), "{error}");
}
