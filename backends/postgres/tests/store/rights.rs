//! Accounts, as PostgreSQL tells of them.

use dlock::ErrorKind;
use dlock_contract::{Backend, BreakRecord, HoldId, Inspect, Listing, Mode, Released, Signal};
use dlock_testkit::holds::{claim_on, confirm, stand, take};

use crate::cases::accounts::{ALL, undone_after_a_former_account};
use crate::kit::{Database, TTL, try_open};
use crate::named_kit::open_at;

row_cases! {
    an_account_without_the_right_to_use_the_schema_is_refused
    an_account_that_may_make_tables_makes_them
    a_database_that_is_missing_is_told
    an_account_that_may_read_and_write_the_shipped_tables_takes_advisory_locks
    a_session_of_a_former_account_is_ended_or_told
}

async fn an_account_without_the_right_to_use_the_schema_is_refused(database: Database) {
    database.migrate().await;
    let url = database.account_with(&ALL).await;
    for table in ["dlock_locks", "dlock_breaks", "dlock_meta"] {
        database.change(&format!("CREATE SCHEMA IF NOT EXISTS aside; ALTER TABLE {table} SET SCHEMA aside")).await;
    }
    let error = try_open(&format!("{url}?schema=aside")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::PermissionDenied, "{error}");
    let (account, _) = url.split_once("://").unwrap().1.split_once(':').unwrap();
    database.change(&format!("GRANT USAGE ON SCHEMA aside TO {account}")).await;
    let store = try_open(&format!("{url}?schema=aside")).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn an_account_that_may_make_tables_makes_them(database: Database) {
    let store = try_open(&database.account_with(&[("CREATE", "SCHEMA public")]).await).await.unwrap();
    let hold = take(&store, &database.claim("a", TTL)).await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
}

async fn a_database_that_is_missing_is_told(database: Database) {
    let error = try_open(&format!("{}_not", database.url())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { .. }), "{error}");
}

async fn an_account_that_may_read_and_write_the_shipped_tables_takes_advisory_locks(database: Database) {
    for sql in [
        include_str!("../../migrations/20261123000003_dlock_meta.sql"),
        include_str!("../../migrations/20261124000001_dlock_named.sql"),
        include_str!("../../migrations/20261124000002_dlock_read_write.sql"),
        include_str!("../../migrations/20261124000003_dlock_tokens.sql"),
    ] {
        database.change(sql).await;
    }
    let rows = ["dlock_meta", "dlock_named", "dlock_read_write"].map(|table| ("SELECT, INSERT, UPDATE", table));
    let rights = [&rows[..], &[("UPDATE", "SEQUENCE dlock_tokens")]].concat();
    let url = format!("{}?way=named", database.account_with(&rights).await);
    let (store, other) = (open_at(&url).await, open_at(&url).await);
    store.ready().await.unwrap();

    let hold = take(&store, &database.claim("a", TTL)).await;
    confirm(&store, &hold).await;
    assert_eq!(store.look(&hold.claim.key).await.unwrap().note(), Some(&hold.claim.note));
    let waiting = tokio::spawn(stand(&other, &database.claim("a", TTL)).await.signal.unwrap());
    database.until_one_waits().await;
    assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
    let Signal::Granted(next) = waiting.await.unwrap().unwrap() else { panic!("no hold") };
    let page = store.list(&Listing::of(database.name.clone())).await.unwrap();
    assert_eq!(page.locks, std::slice::from_ref(&next.claim.key));
    let record = BreakRecord::new("alice", 17, "hangs");
    assert!(store.break_hold(&next.claim.key, HoldId::of(&next.claim.owner), &record).await.unwrap());
    assert_eq!(other.record_of(&next).await.unwrap(), Some(record));

    let reader = || claim_on(&hold.claim.key, TTL, |claim| claim.mode = Mode::Read);
    let reading = take(&store, &reader()).await;
    take(&other, &reader()).await;
    assert_eq!(store.release(&reading).await.unwrap(), Released::Released);
}

/// Its last statement has no answer. Without rights, the present account sees its number alone.
async fn a_session_of_a_former_account_is_ended_or_told(database: Database) {
    database.migrate().await;
    for (rights, may_end) in
        [(&[][..], false), (&["pg_read_all_stats"], false), (&["pg_read_all_stats", "pg_signal_backend"], true)]
    {
        let [former, present] = ["former", "present"].map(|name| format!("{name}_{:08x}", fastrand::u32(..)));
        for account in [&former, &present] {
            database.change(&format!("CREATE ROLE {account} LOGIN PASSWORD 'right'")).await;
            for grant in &ALL {
                database.grant(account, grant).await;
            }
        }
        for right in rights {
            database.change(&format!("GRANT {right} TO {present}")).await;
        }
        let is_told = undone_after_a_former_account(&database, [former, present]).await;
        assert_eq!(is_told, !may_end, "{rights:?}");
    }
}
