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
    let count = |of: &'static str| {
        let sql = format!("SELECT {of} FROM pg_stat_user_indexes WHERE indexrelname = 'dlock_locks_expires_day'");
        let database = &database;
        async move { database.number(&sql).await }
    };
    let _sweeps = database.store_with("sweep_every=50ms&sweep_after=2d").await;
    // The server counts with a delay.
    wait_until("the index is used", async || count("idx_scan").await > 0).await.unwrap();
    let (sweeps, rows) = (count("idx_scan").await, count("idx_tup_read").await);
    assert!(rows <= sweeps, "{sweeps} sweeps have read {rows} rows");
    assert_eq!(database.number("SELECT COUNT(*) FROM dlock_locks").await, 3000);
}

async fn changes_of_a_row_are_heap_only(database: Database) {
    let store = database.store().await;
    for _ in 0..100 {
        let hold = take(&store, &database.claim("a", TTL)).await;
        assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    }
    let count = |of: &'static str| {
        let sql = format!("SELECT {of} FROM pg_stat_user_tables WHERE relname = 'dlock_locks'");
        let database = &database;
        async move { database.number(&sql).await }
    };
    wait_until("the server has counted", async || count("n_tup_upd").await >= 199).await.unwrap();
    // Around midnight one of them changes the day.
    let (all, heap_only) = (count("n_tup_upd").await, count("n_tup_hot_upd").await);
    assert!(heap_only * 10 > all * 9, "{heap_only} of {all} changes");
}
