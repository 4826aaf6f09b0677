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
