//! The index on the day on which a lease ends: the sweep uses it, and a change of a lock's row does not write it.

use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::wait_until;

use crate::cases::sweep::in_use_but_one;
use crate::kit::{Database, TTL};

row_cases! {
    a_sweep_reads_the_oldest_rows_and_not_those_in_use
    changes_of_a_row_are_heap_only
}

async fn a_sweep_reads_the_oldest_rows_and_not_those_in_use(database: Database) {
    let _tables = database.store().await;
    database.change(&in_use_but_one(3000)).await;
    database.change("ANALYZE dlock_locks").await;
    let _sweeps = database.store_with("sweep_every=50ms&sweep_after=2d").await;
    // Sweeps go on, so both counters are read at once.
    let count =
        "SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'dlock_locks_expires_day'";
    // The server counts with a delay.
    wait_until("the index is used", async || numbers(&database, count).await.0 > 0).await.unwrap();
    let (sweeps, rows) = numbers(&database, count).await;
    // A sweep may read entries of rows that were changed. One that reads the rows in use reads thousands.
    assert!(rows < sweeps * 30, "{sweeps} sweeps have read {rows} rows");
    assert_eq!(database.number("SELECT COUNT(*) FROM dlock_locks").await, 3000);
}

async fn changes_of_a_row_are_heap_only(database: Database) {
    let store = database.store().await;
    for _ in 0..100 {
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    }
    let count = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'dlock_locks'";
    wait_until("the server has counted", async || numbers(&database, count).await.0 >= 199).await.unwrap();
    // Around midnight one of them changes the day.
    let (all, heap_only) = numbers(&database, count).await;
    assert!(heap_only * 10 > all * 9, "{heap_only} of {all} changes");
}

/// Two numbers of one row. In two statements they would be of two moments.
async fn numbers(database: &Database, sql: &'static str) -> (i64, i64) {
    sqlx::query_as(sql).fetch_one(&mut database.connect().await).await.unwrap()
}
