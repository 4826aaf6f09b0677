//! 1205 taken for a deadlock: the statement is tried again, or the call returns, and the transaction is still open.

use sqlx::{Connection, Executor, MySqlConnection};

use crate::naive::{number_of, pools};

const FIRST: &str = "UPDATE naive_timeout SET n = n + 1 WHERE lock_key = 'first'";
const SECOND: &str = "UPDATE naive_timeout SET n = n + 1 WHERE lock_key = 'second'";

/// Whether somebody has locked the first row.
async fn is_locked(conn: &mut MySqlConnection) -> bool {
    let look = conn.fetch_optional("SELECT n FROM naive_timeout WHERE lock_key = 'first' FOR UPDATE NOWAIT").await;
    look.is_err_and(|error| matches!(number_of(&error), Some(1205 | 3572)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_wait_ran_out_keeps_its_locks() {
    let table = "CREATE TABLE IF NOT EXISTS naive_timeout (lock_key VARCHAR(64) PRIMARY KEY, n BIGINT NOT NULL); \
                 INSERT IGNORE INTO naive_timeout VALUES ('first', 0), ('second', 0)";
    for pool in pools(table, 3).await {
        let mut somebody = pool.begin().await.unwrap();
        somebody.execute(SECOND).await.unwrap();
        let mut caller = pool.acquire().await.unwrap();
        caller.execute("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
        let mut transaction = caller.begin().await.unwrap();
        transaction.execute(FIRST).await.unwrap();
        assert_eq!(number_of(&transaction.execute(SECOND).await.unwrap_err()), Some(1205));
        let mut other = pool.acquire().await.unwrap();
        assert!(is_locked(&mut other).await, "1205 has undone the transaction, as a deadlock does");
        transaction.rollback().await.unwrap();
        assert!(!is_locked(&mut other).await);
        somebody.rollback().await.unwrap();
    }
}
