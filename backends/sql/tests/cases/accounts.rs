//! Accounts with no more rights than locks need, and with fewer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::{Clock, ErrorKind};
use dlock_contract::{
    Attempt, Backend, BreakRecord, HoldId, Inspect, Keeps, Listing, Periods, Queue, Released, RunEnd,
};
use dlock_testkit::holds::{confirm, take, token};
use dlock_testkit::{Proxy, text_of, wait_until};

use super::kit::{Builder, Database, Login, TTL, try_open};
use super::support::{attempt, is_refused};
use crate::named::rights::tells_of_a_right;

row_cases! {
    an_account_that_may_read_insert_and_update_the_shipped_tables_can_do_everything
    an_account_that_may_not_make_a_missing_table_is_refused_with_the_name_of_the_table
    an_account_without_a_right_is_refused_when_the_store_is_opened
    a_right_that_is_taken_away_is_told_by_the_probe
}

pub(crate) const ALL: [(&str, &str); 3] = [
    ("SELECT, INSERT, UPDATE", "dlock_locks"),
    ("SELECT, INSERT, UPDATE", "dlock_breaks"),
    ("SELECT, INSERT, UPDATE", "dlock_meta"),
];

const HOUR: Duration = Duration::from_secs(3600);

async fn an_account_that_may_read_insert_and_update_the_shipped_tables_can_do_everything(database: Database) {
    database.migrate().await;
    let store = try_open(&database.account_with(&ALL).await).await.unwrap();
    store.ready().await.unwrap();

    let hold = take(&store, &database.claim("a", TTL)).await;
    confirm(&store, &hold).await;
    assert_eq!(store.look(&hold.claim.key).await.unwrap().note(), Some(&hold.claim.note));
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let again = take(&store, &database.claim("a", TTL)).await;
    assert!(token(&again) > token(&hold));
    assert_eq!(store.keep(&again, HOUR, None).await.unwrap(), Released::Released);
    is_refused(&store, &database.claim("a", TTL)).await;
    store.abandon(&database.claim("a", TTL)).await.unwrap();

    let run = take(&store, &database.run_claim("run", HOUR)).await;
    store.end_run(&run, RunEnd::Succeeded { took: TTL }).await.unwrap();
    let next = store.try_acquire(&database.run_claim("run", HOUR), Queue::Leave).await.unwrap();
    assert!(matches!(next, Attempt::AlreadyRun), "{next:?}");
    assert_eq!(store.last_success(&run.claim.key).await.unwrap().unwrap().took, TTL);

    let broken = take(&store, &database.claim("broken", TTL)).await;
    let record = BreakRecord::new("alice", 17, "hangs");
    assert!(store.break_hold(&broken.claim.key, HoldId::of(&broken.claim.owner), &record).await.unwrap());
    assert_eq!(store.record_of(&broken).await.unwrap(), Some(record));
    let page = store.list(&Listing::of(database.name.clone())).await.unwrap();
    assert_eq!(page.locks, std::slice::from_ref(&hold.claim.key), "only the kept lock is taken");
}

async fn an_account_that_may_not_make_a_missing_table_is_refused_with_the_name_of_the_table(database: Database) {
    database.migrate().await;
    let url = database.account_with(&ALL).await;
    for table in ["dlock_locks", "dlock_breaks", "dlock_meta"] {
        database.change(&format!("DROP TABLE {table}")).await;
        let error = try_open(&url).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains(&format!("CREATE TABLE {table} (")), "{error}");
        // The account that may make it does, and after that the other one needs its rights again.
        drop(database.store().await);
        let (account, _) = url.split_once("://").unwrap().1.split_once(['@', ':']).unwrap();
        database.grant(account, ALL.iter().find(|(_, of)| *of == table).unwrap()).await;
        try_open(&url).await.unwrap();
    }
}

async fn an_account_without_a_right_is_refused_when_the_store_is_opened(database: Database) {
    drop(database.store().await);
    for (number, (_, table)) in ALL.iter().enumerate() {
        // Nothing but reading and inserting happens to the table of ways.
        let needed: &[&str] =
            if *table == "dlock_meta" { &["SELECT", "INSERT"] } else { &["SELECT", "INSERT", "UPDATE"] };
        for right in needed {
            let fewer = needed.iter().filter(|other| *other != right).copied().collect::<Vec<_>>().join(", ");
            let mut rights = ALL;
            rights[number] = (&fewer, table);
            let url = database.account_with(&rights).await;
            let error = try_open(&url).await.expect_err(&format!("opened without {right} on {table}"));
            assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "without {right} on {table}: {error}");
            let account = url.split_once("://").unwrap().1.split_once(['@', ':']).unwrap().0;
            assert!(!text_of(&error).contains(account), "{error:?}");
        }
    }
    // The probes of the openings that were refused keep no row locked.
    attempt(&database.store().await, &database.claim("a", TTL)).await.unwrap().unwrap();
}

async fn a_right_that_is_taken_away_is_told_by_the_probe(database: Database) {
    database.migrate().await;
    let url = database.account_with(&ALL).await;
    tells_of_a_right(&database, &url, &try_open(&url).await.unwrap(), "dlock_locks").await;
}

/// The last request of the former account has no answer, and the store undoes it when it has the present account. True: the store
/// tells of a session that the present account may not end. Both have the password `right`.
pub(crate) async fn undone_after_a_former_account(database: &Database, [former, present]: [String; 2]) -> bool {
    let account = Arc::new(Mutex::new(former));
    let provide = {
        let account = account.clone();
        move || {
            let login = Login::user(account.lock().unwrap().clone(), "right");
            async move { Ok::<_, std::io::Error>(login) }
        }
    };
    let proxy = Proxy::start(database.addr()).unwrap();
    // With one connection, none of the former account is left when the present one comes.
    let options = format!("max_connections=1&{}", database.for_passwords().await);
    let url = format!("{}?{}", database.url_at(proxy.port()), options.trim_end_matches('&'));
    let store = Builder::url(&url).unwrap().credentials(provide).open(&Clock::system()).await.unwrap();
    // The row is there, so that one request is enough.
    store.release(&take(&*store, &database.claim("a", TTL)).await).await.unwrap();
    proxy.keep();
    let late = database.claim("a", TTL);
    store.try_acquire(&late, Queue::Leave).await.unwrap_err();
    *account.lock().unwrap() = present;
    wait_until("it is undone", async || store.abandon(&late).await.is_ok()).await.unwrap();
    let health = store.ready().await.unwrap();
    let hold = take(&*store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    health.findings.iter().any(|finding| finding.contains("the account that the program had before"))
}
