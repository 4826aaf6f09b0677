//! An account that may do nothing but read and write the shipped tables.

use std::time::Duration;

use dlock::{ErrorKind, Held, Mode};
use dlock_contract::{Backend, BreakRecord, HoldId, Inspect, Listing, Released, Signal};
use dlock_testkit::holds::{claim_on, confirm, stand, take};

use super::world::{Failure, registry, run};
use crate::named::rights::tells_of_a_right;
use crate::row_kit::{Database, MIGRATIONS, open, transaction};

row_lock_cases! {
    an_account_that_may_read_and_write_the_shipped_tables_can_do_everything
    an_account_without_a_right_is_refused_when_the_store_is_opened
    a_right_that_is_taken_away_is_told_by_the_probe
    an_account_that_may_read_and_change_a_table_of_the_users_own_locks_its_rows
}

const TTL: Duration = Duration::from_secs(9);

const ALL: [(&str, &str); 3] = [
    ("SELECT, INSERT, UPDATE", "dlock_rows"),
    ("SELECT, INSERT, UPDATE", "dlock_meta"),
    ("SELECT, INSERT, UPDATE", "dlock_row_keys"),
];

async fn migrate(database: &Database) {
    for sql in MIGRATIONS {
        database.change(sql).await;
    }
}

async fn an_account_that_may_read_and_write_the_shipped_tables_can_do_everything(database: Database) {
    migrate(&database).await;
    let url = database.account_with(&ALL).await;
    let (store, other) = (open(&url).await.unwrap(), open(&url).await.unwrap());
    store.ready().await.unwrap();

    let hold = take(&store, &database.claim("a", TTL)).await;
    confirm(&store, &hold).await;
    assert_eq!(store.look(&hold.claim.key).await.unwrap().note(), Some(&hold.claim.note));
    let waiting = tokio::spawn(stand(&other, &database.claim("a", TTL)).await.signal.unwrap());
    let waits = async || crate::row_kit::waiting(&database).await == 1;
    dlock_testkit::wait_until("it waits", waits).await.unwrap();
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let Signal::Granted(next) = waiting.await.unwrap().unwrap() else { panic!("no hold") };
    let page = store.list(&Listing::of(database.name.clone())).await.unwrap();
    assert_eq!(page.locks, std::slice::from_ref(&next.claim.key));
    let record = BreakRecord::new("alice", 17, "hangs");
    assert!(store.break_hold(&next.claim.key, HoldId::of(&next.claim.owner), &record).await.unwrap());
    assert_eq!(other.record_of(&next).await.unwrap(), Some(record));

    let reader = claim_on(&next.claim.key, TTL, |claim| claim.mode = Mode::Read);
    let reading = take(&store, &reader).await;
    take(&other, &claim_on(&next.claim.key, TTL, |claim| claim.mode = Mode::Read)).await;
    assert_eq!(store.release(&reading).await.unwrap(), Released::Released);
}

async fn an_account_without_a_right_is_refused_when_the_store_is_opened(database: Database) {
    migrate(&database).await;
    for (number, (_, table)) in ALL.iter().enumerate() {
        let mut rights = ALL;
        rights[number] = ("SELECT", table);
        let error = open(&database.account_with(&rights).await).await.expect_err(table);
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{table}: {error}");
    }
}

async fn a_right_that_is_taken_away_is_told_by_the_probe(database: Database) {
    migrate(&database).await;
    let url = database.account_with(&ALL).await;
    tells_of_a_right(&database, &url, &open(&url).await.unwrap(), "dlock_rows").await;
}

async fn an_account_that_may_read_and_change_a_table_of_the_users_own_locks_its_rows(database: Database) {
    migrate(&database).await;
    database.change("CREATE TABLE data (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)").await;
    database.change("INSERT INTO data VALUES (1, 0)").await;
    let rights = [ALL[0], ALL[1], ("SELECT, UPDATE", "data")];
    let url = format!("{}?way=row&table=data&column=id", database.account_with(&rights).await);
    let registry = registry(&database, &url).await;
    let body = async |held: Held| {
        let change = "UPDATE data SET n = n + 1 WHERE id = 1";
        run(&mut transaction(&held)?, change).await
    };
    let result: Result<(), Failure> = registry.lock(dlock::Key::new().value(&1)).run_fallible(body).await;
    result.unwrap();
    assert_eq!(database.lines("SELECT n FROM data").await, ["1"]);
}
