//! The way of a namespace. Two programs with two ways would exclude nobody.

use dlock::{ErrorKind, Key, Registry};
use dlock_testkit::holds::{claim_on, key, take};

use super::kit::{Database, TTL};
use super::support::attempt;

row_cases! {
    a_namespace_that_is_locked_in_another_way_is_refused
    a_namespace_keeps_the_way_of_its_first_lock
    a_store_whose_namespace_is_locked_in_another_way_is_not_ready_in_any_way
}

async fn a_namespace_that_is_locked_in_another_way_is_refused(database: Database) {
    let store = database.store().await;
    let name = format!("way:{}", database.name);
    database.change(&format!("INSERT INTO dlock_meta (name, word, number) VALUES ('{name}', 'named', 0)")).await;
    for _ in 0..2 {
        let error = attempt(&store, &database.claim("a", TTL)).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
        assert!(!error.may_have_left() && !error.is_retryable(), "{error:?}");
        for named in ["way=named", "way=lease", &name, "dlock_meta"] {
            assert!(error.to_string().contains(named), "{named}: {error}");
        }
    }
    assert_eq!(database.lines("SELECT k FROM dlock_locks").await, [""; 0], "something was taken");
    take(&store, &claim_on(&key("elsewhere"), TTL, |_| ())).await;
    // As the error says.
    database.change(&format!("DELETE FROM dlock_meta WHERE name = '{name}'")).await;
    take(&store, &database.claim("a", TTL)).await;
}

async fn a_namespace_keeps_the_way_of_its_first_lock(database: Database) {
    let (one, other) = (database.store().await, database.store().await);
    // Both look first, and then both write it.
    let (first, second) = (database.claim("a", TTL), database.claim("b", TTL));
    let (first, second) = futures::join!(attempt(&one, &first), attempt(&other, &second));
    assert!(first.unwrap().is_some() && second.unwrap().is_some());
    let ways = database.lines("SELECT word FROM dlock_meta WHERE name LIKE 'way:%'").await;
    assert_eq!(ways, ["lease"]);
}

/// As two stores over one database.
async fn a_store_whose_namespace_is_locked_in_another_way_is_not_ready_in_any_way(database: Database) {
    let registry = Registry::new();
    for way in ["lease", "named", "row"] {
        registry.connect(way, &format!("{}?way={way}", database.url())).await.unwrap();
        registry.ready(way).await.unwrap();
    }
    for way in ["named", "row", "lease"] {
        // A probe leaves no way behind.
        database.forget_way().await;
        registry.ready(way).await.unwrap();
        registry.lock(Key::text("a")).backend(way).try_acquire().await.unwrap().release().await.unwrap();
        for other in ["lease", "named", "row"].into_iter().filter(|other| *other != way) {
            let refused = registry.ready(other).await.expect_err(other);
            assert_eq!(*refused.kind(), ErrorKind::SchemaMismatch, "{way}, {other}: {refused}");
            assert!(refused.to_string().contains(&format!("way={way}")), "{way}, {other}: {refused}");
        }
        registry.ready(way).await.unwrap();
    }
}
