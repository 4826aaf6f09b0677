//! Accounts with fewer rights than locks need.

use dlock::backends::mysql::named;
use dlock::{Clock, ErrorKind};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::take;
use dlock_testkit::text_of;
use sqlx::{AssertSqlSafe, Executor};

use crate::named_kit::{TTL, open};
use crate::server::Database;

named_cases! {
    a_right_that_is_missing_is_named_when_the_store_is_opened
    opening_leaves_nothing
}

async fn a_right_that_is_missing_is_named_when_the_store_is_opened(database: Database) {
    drop(open(&database).await);
    let mut root = database.connect().await;
    for (number, (granted, missing)) in [
        ("", Some("all")),
        ("SELECT", Some("INSERT, UPDATE")),
        ("SELECT, INSERT", Some("UPDATE")),
        ("INSERT, UPDATE", Some("SELECT")),
        // All that is needed.
        ("SELECT, INSERT, UPDATE", None),
    ]
    .into_iter()
    .enumerate()
    {
        let account = format!("canary{number}_{:08x}", fastrand::u32(..));
        root.execute(AssertSqlSafe(format!("CREATE USER '{account}'@'%'"))).await.unwrap();
        if !granted.is_empty() {
            let grant = format!("GRANT {granted} ON {}.dlock_named TO '{account}'@'%'", database.name);
            root.execute(AssertSqlSafe(grant)).await.unwrap();
            let meta = format!("GRANT SELECT, INSERT, UPDATE ON {}.dlock_meta TO '{account}'@'%'", database.name);
            root.execute(AssertSqlSafe(meta)).await.unwrap();
        }
        let opened = named::open(&database.url_of(&account), &Clock::system()).await;
        match missing {
            None => {
                let store = opened.unwrap();
                let hold = take(&store, &database.claim("a", TTL)).await;
                assert_eq!(store.look(&hold.claim.key).await.unwrap().note().cloned().unwrap(), hold.claim.note);
                assert_eq!(store.release(&hold).await.unwrap(), Released::Released);
            }
            Some(missing) => {
                let error = opened.err().unwrap_or_else(|| panic!("opened with no more than: {granted}"));
                assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{granted}: {error:?}");
                let text = error.to_string();
                // Without any right the server does not even let it see the database.
                let named = text.contains(&format!("table: {missing};"));
                assert!(named || granted.is_empty(), "{granted}: {text}");
                assert!(!text_of(&error).contains("canary"), "{error:?}");
            }
        }
        root.execute(AssertSqlSafe(format!("DROP USER '{account}'@'%'"))).await.unwrap();
    }
}

async fn opening_leaves_nothing(database: Database) {
    let _store = open(&database).await;
    let mut root = database.connect().await;
    let (rows,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM dlock_named").fetch_one(&mut root).await.unwrap();
    assert_eq!(rows, 0);
}
