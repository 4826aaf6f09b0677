//! Rows of keys that nobody has used for long.

use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{take, token};
use dlock_testkit::wait_until;

use crate::named_kit::{Database, ROWS_DRAW_TOKENS, TTL, open_at};

named_cases! {
    a_row_is_swept_once_its_key_was_unused_for_long_and_its_tokens_still_rise
    a_sweep_goes_on_behind_a_row_that_somebody_keeps_locked
    no_row_is_swept_unless_the_url_says_so
}

async fn a_row_is_swept_once_its_key_was_unused_for_long_and_its_tokens_still_rise(database: Database) {
    let separator = if database.url().contains('?') { '&' } else { '?' };
    let store = open_at(&format!("{}{separator}sweep_every=100ms&sweep_after=300ms", database.url())).await;
    let held = take(&store, &database.claim("held", TTL)).await;
    let free = take(&store, &database.claim("free", TTL)).await;
    assert_eq!(store.release(&free).await.unwrap(), Released::Released);
    let rows = async || database.lines("SELECT k FROM dlock_named WHERE k <> ''").await;
    wait_until("the free key's row is swept", async || rows().await.len() == 1).await.unwrap();
    assert_eq!(rows().await, [held.claim.key.as_str()]);
    let mut last = token(&free);
    if ROWS_DRAW_TOKENS {
        let swept = database.lines("SELECT number FROM dlock_meta WHERE name = 'swept'").await;
        assert!(swept[0].parse::<u64>().unwrap() >= last, "{swept:?} is below {last}");
        // A server clock that was set back by a minute since then.
        database.change("UPDATE dlock_meta SET number = number + 60000000 WHERE name = 'swept'").await;
        last += 60_000_000;
    }
    let again = take(&store, &database.claim("free", TTL)).await;
    assert!(token(&again) > last, "{} after {last}", token(&again));
    assert_eq!(store.release(&held).await.unwrap(), Released::Released);
}

async fn a_sweep_goes_on_behind_a_row_that_somebody_keeps_locked(database: Database) {
    let separator = if database.url().contains('?') { '&' } else { '?' };
    let store = open_at(&format!("{}{separator}sweep_every=100ms&sweep_after=300ms", database.url())).await;
    let claims = ["a", "b"].map(|text| database.claim(text, TTL));
    let mut holds = Vec::new();
    for claim in &claims {
        holds.push(take(&store, claim).await);
    }
    let mut somebody = database.connect().await;
    let [locked, free] = claims.each_ref().map(|claim| claim.key.as_str());
    let locks = format!("START TRANSACTION; SELECT k FROM dlock_named WHERE k = '{locked}' FOR UPDATE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(locks)).execute(&mut somebody).await.unwrap();
    for hold in &holds {
        assert_eq!(store.release(hold).await.unwrap(), Released::Released);
    }
    let is_there =
        async |name: &str| !database.lines(&format!("SELECT k FROM dlock_named WHERE k = '{name}'")).await.is_empty();
    wait_until("the free row is swept", async || !is_there(free).await).await.unwrap();
    assert!(is_there(locked).await);
    drop(somebody);
    wait_until("the other row is swept", async || !is_there(locked).await).await.unwrap();
}

async fn no_row_is_swept_unless_the_url_says_so(database: Database) {
    let store = open_at(&database.url()).await;
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(database.lines("SELECT COUNT(*) FROM dlock_named WHERE k <> ''").await, ["1"]);
}
