//! Rows of unused keys: which of them a sweep deletes, and that nothing is lost by it.

use std::time::Duration;

use dlock_contract::{Backend, Periods, RunEnd, Standing};
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::wait_until;

use super::kit::{Database, NOW, TTL};

row_cases! {
    a_row_that_was_unused_for_long_is_swept_and_its_tokens_still_rise
    a_sweep_leaves_rows_that_are_held_or_were_used_or_had_runs
    old_records_of_broken_holds_are_swept
    a_store_without_the_option_sweeps_nothing_soon
    more_rows_than_a_page_are_swept
    a_row_that_somebody_keeps_locked_does_not_keep_the_others
    of_two_stores_one_sweeps_in_a_period
}

const OFTEN: &str = "sweep_every=50ms&sweep_after=1h";

/// As if two hours had passed since.
fn long_ago() -> String {
    format!("UPDATE dlock_locks SET expires_us = {NOW} - 7200000000")
}

async fn a_row_that_was_unused_for_long_is_swept_and_its_tokens_still_rise(database: Database) {
    let store = database.store().await;
    for key in 0..300 {
        let hold = take(&store, &database.claim(&key.to_string(), TTL)).await;
        store.release(&hold).await.unwrap();
    }
    // Ahead of the server's clock, so that its time alone would give a lower one.
    database.change("UPDATE dlock_locks SET token = token + 3600000000").await;
    let before = *database.tokens().await.iter().max().unwrap();
    database.change(&long_ago()).await;
    let sweeps = database.store_with(OFTEN).await;
    wait_until("the rows are swept", async || database.number("SELECT COUNT(*) FROM dlock_locks").await == 0)
        .await
        .unwrap();
    let hold = take(&sweeps, &database.claim("7", TTL)).await;
    assert!(i64::try_from(token(&hold)).unwrap() > before, "{} after {before}", token(&hold));
}

async fn a_sweep_leaves_rows_that_are_held_or_were_used_or_had_runs(database: Database) {
    let store = database.store().await;
    let used = |text: &'static str| database.claim(text, TTL);
    for text in ["swept", "swept too"] {
        store.release(&take(&store, &used(text)).await).await.unwrap();
    }
    let run = take(&store, &database.run_claim("ran", Duration::from_secs(3600))).await;
    store.end_run(&run, RunEnd::Succeeded { took: TTL }).await.unwrap();
    database.change(&long_ago()).await;
    let held = take(&store, &used("held")).await;
    store.release(&take(&store, &used("used")).await).await.unwrap();
    let _sweeps = database.store_with(OFTEN).await;
    wait_until("the old rows are swept", async || database.number("SELECT COUNT(*) FROM dlock_locks").await == 3)
        .await
        .unwrap();
    let mut left = database.lines("SELECT k FROM dlock_locks").await;
    left.sort();
    let names = ["held", "ran", "used"].map(|text| used(text).key.as_str().to_owned());
    assert_eq!(left, names);
    assert!(matches!(confirm(&store, &held).await, Standing::Renewed(_)));
    assert!(store.last_success(&run.claim.key).await.unwrap().is_some());
}

async fn old_records_of_broken_holds_are_swept(database: Database) {
    let _sweeps = database.store_with(OFTEN).await;
    let insert = |hold: &str, until: &str| {
        format!("INSERT INTO dlock_breaks (hold, record, until_us) VALUES ('{hold}', '', {until})")
    };
    database.change(&insert("young", &format!("{NOW} + 3600000000"))).await;
    database.change(&insert("old", "1")).await;
    let left = async || database.lines("SELECT hold FROM dlock_breaks").await;
    wait_until("the old record is swept", async || left().await == ["young"]).await.unwrap();
}

async fn a_store_without_the_option_sweeps_nothing_soon(database: Database) {
    let store = database.store().await;
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    database.change(&long_ago()).await;
    // Another store shows that a sweep has come and gone meanwhile. It leaves what is younger than its own time.
    let _sweeps = database.store_with("sweep_every=50ms&sweep_after=3h").await;
    let swept = "SELECT COUNT(*) FROM dlock_meta WHERE name = 'sweep' AND number > 0";
    wait_until("a sweep has begun", async || database.number(swept).await == 1).await.unwrap();
    assert_eq!(database.number("SELECT COUNT(*) FROM dlock_locks").await, 1);
}

/// Makes rows that were used just now, and one that was not for long.
pub(crate) fn in_use_but_one(rows: u32) -> String {
    let sixty = "up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 60)";
    format!(
        "INSERT INTO dlock_locks (k, token, expires_us, note, hold) WITH RECURSIVE {sixty} \
         SELECT CONCAT('n', a.n, '.', b.n), 1, CASE WHEN a.n = 7 AND b.n = 7 THEN 1 ELSE {NOW} END, '', '' \
         FROM up a CROSS JOIN up b ORDER BY a.n <> 7, b.n <> 7 LIMIT {}",
        rows + 1
    )
}

async fn more_rows_than_a_page_are_swept(database: Database) {
    let store = database.store().await;
    let held = take(&store, &database.claim("held", TTL)).await;
    let fifty = "up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 50)";
    // The first 1500 were used just now, so those behind them are on other pages, whenever a sweep begins.
    let rows = format!(
        "INSERT INTO dlock_locks (k, token, expires_us, note, hold) WITH RECURSIVE {fifty} \
         SELECT CONCAT('n', 100 + a.n, '.', b.n), 1, CASE WHEN a.n <= 30 THEN {NOW} ELSE 1 END, '', '' \
         FROM up a CROSS JOIN up b"
    );
    database.change(&rows).await;
    let count = async || database.number("SELECT COUNT(*) FROM dlock_locks").await;
    assert_eq!(count().await, 2501);
    let _sweeps = database.store_with(OFTEN).await;
    wait_until("the old rows are swept", async || count().await <= 1501).await.unwrap();
    assert_eq!(database.number("SELECT COUNT(*) FROM dlock_locks WHERE k LIKE 'n%' AND k < 'n131'").await, 1500);
    assert!(matches!(confirm(&store, &held).await, Standing::Renewed(_)));
}

async fn a_row_that_somebody_keeps_locked_does_not_keep_the_others(database: Database) {
    let store = database.store().await;
    for key in 0..40 {
        store.release(&take(&store, &database.claim(&key.to_string(), TTL)).await).await.unwrap();
    }
    database.change(&long_ago()).await;
    let somebody = database.lock_row(database.claim("20", TTL).key.as_str()).await;
    let _sweeps = database.store_with(OFTEN).await;
    let left = async || database.number("SELECT COUNT(*) FROM dlock_locks").await;
    wait_until("the other rows are swept", async || left().await == 1).await.unwrap();
    drop(somebody);
    wait_until("the row is swept", async || left().await == 0).await.unwrap();
}

async fn of_two_stores_one_sweeps_in_a_period(database: Database) {
    let store = database.store().await;
    store.release(&take(&store, &database.claim("a", TTL)).await).await.unwrap();
    database.change(&long_ago()).await;
    // As another store has it that sweeps once in two hours, and has just begun.
    database.change(&format!("INSERT INTO dlock_meta VALUES ('sweep', '', {NOW} + 3600000000)")).await;
    let _sweeps = database.store_with(OFTEN).await;
    // A store makes this row before it asks whether it is its turn. After the second time it has done what followed the first.
    for _ in 0..2 {
        database.change("DELETE FROM dlock_meta WHERE name = 'swept'").await;
        let asks = async || database.number("SELECT COUNT(*) FROM dlock_meta WHERE name = 'swept'").await == 1;
        wait_until("it asks for its turn", asks).await.unwrap();
    }
    assert_eq!(database.number("SELECT COUNT(*) FROM dlock_locks").await, 1, "two stores sweep in one period");
    // The period of the other one is over.
    database.change("UPDATE dlock_meta SET number = 0 WHERE name = 'sweep'").await;
    wait_until("it sweeps", async || database.number("SELECT COUNT(*) FROM dlock_locks").await == 0).await.unwrap();
}
