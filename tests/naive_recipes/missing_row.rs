//! `SELECT … FOR UPDATE` in a transaction, and an `INSERT` if there is no row: a row that does not exist locks nobody out.

use futures::future::join_all;
use sqlx::Executor;

use crate::naive::{number_of, pools};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_callers_of_for_update_on_a_missing_row_both_go_on_and_then_deadlock() {
    let table =
        "CREATE TABLE IF NOT EXISTS naive_missing (lock_key VARCHAR(64) PRIMARY KEY, holder VARCHAR(64) NOT NULL)";
    for pool in pools(table, 2).await {
        let key = format!("{:x}", fastrand::u64(..));
        let mut callers = Vec::new();
        for _ in 0..2 {
            let mut transaction = pool.begin().await.unwrap();
            let select = sqlx::query("SELECT * FROM naive_missing WHERE lock_key = ? FOR UPDATE").bind(&key);
            // The second one is not refused, and does not wait.
            assert!(transaction.fetch_optional(select).await.unwrap().is_none());
            callers.push(transaction);
        }
        let inserted = join_all(callers.into_iter().enumerate().map(async |(number, mut transaction)| {
            let insert = sqlx::query("INSERT INTO naive_missing VALUES (?, ?)").bind(&key).bind(number.to_string());
            let inserted = transaction.execute(insert).await;
            if inserted.is_ok() {
                transaction.commit().await.unwrap()
            } else {
                transaction.rollback().await.unwrap()
            }
            inserted
        }))
        .await;
        let refused: Vec<_> =
            inserted.iter().filter_map(|inserted| inserted.as_ref().err().and_then(number_of)).collect();
        assert_eq!(refused, [1213], "{inserted:?}");
    }
}
