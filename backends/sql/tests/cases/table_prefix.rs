//! Tables with other names than dlock's own.

use dlock::Registry;
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, stand, take};

use super::kit::{Database, TTL};
use super::wait_queue::{granted, hold_with_turn};

row_cases! {
    the_tables_of_every_way_begin_with_the_prefix_of_the_url
    tables_of_two_prefixes_exclude_nobody_and_have_wait_queues_of_their_own
}

async fn the_tables_of_every_way_begin_with_the_prefix_of_the_url(database: Database) {
    // Each way with a prefix of its own: the table that binds a namespace to one way has it too.
    for (way, table) in [("lease", "lease_locks"), ("named", "named_named"), ("row", "row_rows")] {
        let registry = connect(&database, &format!("way={way}&table_prefix={way}_")).await;
        let first = registry.lock("key").ttl(TTL).acquire().await.unwrap();
        let token = first.fence().unwrap();
        first.release().await.unwrap();
        let next = registry.lock("key").ttl(TTL).acquire().await.unwrap();
        assert!(next.fence().unwrap().get() > token.get());
        assert_eq!(registry.lock("key").holders().await.unwrap().holders.len(), 1);
        next.release().await.unwrap();
        assert!(tables(&database, &format!("{way}_")).await.contains(&table.to_owned()), "{way}");
    }
    assert_eq!(tables(&database, "dlock_").await, [""; 0]);
}

async fn tables_of_two_prefixes_exclude_nobody_and_have_wait_queues_of_their_own(database: Database) {
    let (here, there) = (database.store().await, database.store_with("table_prefix=other_").await);
    let claim = database.claim("a", TTL);
    assert_eq!(here.ready().await.unwrap().findings, [""; 0]);
    let hold = hold_with_turn(&database, &here, "a").await;
    let first = take(&there, &claim_on(&claim.key, TTL, |_| ())).await;
    let wake = stand(&there, &claim_on(&claim.key, TTL, |_| ())).await;
    assert_eq!(there.release(&first).await.unwrap(), Released::Released);
    // In the other queue it would wait for the hold that is still there.
    there.release(&granted(wake).await).await.unwrap();
    for (store, other) in [(&here, "other_meta"), (&there, "dlock_meta")] {
        let findings = store.ready().await.unwrap().findings;
        assert!(findings.len() == 1 && findings[0].contains(&format!("in the table {other} too")), "{findings:?}");
    }
    assert_eq!(here.release(&hold).await.unwrap(), Released::Released);
    assert!(tables(&database, "dlock_").await.contains(&"dlock_locks".to_owned()), "it is the default");
    here.close().await;
    there.close().await;
}

async fn connect(database: &Database, options: &str) -> Registry {
    let registry = Registry::new();
    registry.connect("store", &format!("{}?{options}", database.url())).await.unwrap();
    registry.set_default("store").unwrap();
    registry
}

/// The tables of this database whose names begin so.
async fn tables(database: &Database, prefix: &str) -> Vec<String> {
    let sql = format!(
        "SELECT CAST(table_name AS CHAR(64)) FROM information_schema.tables WHERE table_schema IN ('public', '{}')",
        database.name
    );
    let mut tables = database.lines(&sql).await;
    tables.retain(|table| table.starts_with(prefix));
    tables.iter().map(|table| table.trim_end().to_owned()).collect()
}
