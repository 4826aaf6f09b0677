//! Accounts, as MySQL and MariaDB tell of them.

use std::sync::{Arc, Mutex};

use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Queue, Released};
use dlock_testkit::holds::take;
use dlock_testkit::{Proxy, wait_until};

use super::kit::{Builder, Database, Login, TTL, try_open};

named_cases! {
    on both:
    a_right_that_is_missing_is_named
    rights_on_the_whole_database_are_enough
    a_session_of_a_former_account_keeps_no_abandon_from_its_work_and_is_told
}

async fn a_right_that_is_missing_is_named(database: Database) {
    drop(database.store().await);
    for (granted, missing) in [("SELECT, INSERT", "UPDATE"), ("SELECT, UPDATE", "INSERT"), ("SELECT", "INSERT")] {
        let rest = "SELECT, INSERT, UPDATE";
        let url =
            database.account_with(&[(granted, "dlock_locks"), (rest, "dlock_breaks"), (rest, "dlock_meta")]).await;
        let error = try_open(&url).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{granted}: {error}");
        assert!(error.to_string().contains(&format!("table: {missing}")), "{granted}: {error}");
    }
}

async fn rights_on_the_whole_database_are_enough(database: Database) {
    let store = try_open(&database.account_with(&[("SELECT, INSERT, UPDATE, CREATE", "*")]).await).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

/// Its last statement has no answer, and the present account may not end it.
async fn a_session_of_a_former_account_keeps_no_abandon_from_its_work_and_is_told(database: Database) {
    let [former, present] = ["former", "present"].map(|name| format!("{name}_{:08x}", fastrand::u32(..)));
    for account in [&former, &present] {
        database.make_account(account, "right").await;
    }
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
    take(&*store, &database.claim("a", TTL)).await;
    let health = store.ready().await.unwrap();
    assert!(
        health.findings.iter().any(|finding| finding.contains("the account that the program had before")),
        "{health}"
    );
}
