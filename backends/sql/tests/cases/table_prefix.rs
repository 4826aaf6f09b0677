//! Tables with other names than dlock's own.

use dlock::{ErrorKind, Registry};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, stand, take};

use super::kit::{Database, TTL};
use super::wait_queue::{granted, hold_with_turn};

row_cases! {
    the_tables_of_every_way_begin_with_the_prefix_of_the_url
    tables_of_two_prefixes_exclude_nobody_and_have_wait_queues_of_their_own
    named_locks_of_a_second_prefix_are_refused_before_they_write_and_told_if_both_have_written
    rows_of_one_table_under_two_prefixes_exclude_each_other_and_a_probe_says_so
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

/// The names of their locks have no prefix, and the tokens of each table are counted apart.
async fn named_locks_of_a_second_prefix_are_refused_before_they_write_and_told_if_both_have_written(
    database: Database,
) {
    let here = connect(&database, "way=named").await;
    let there = connect(&database, "way=named&table_prefix=other_").await;
    let cycle = async |registry: &Registry| registry.lock("key").ttl(TTL).acquire().await?.release().await;
    cycle(&here).await.unwrap();
    for _ in 0..2 {
        for error in [cycle(&there).await.unwrap_err(), there.ready("store").await.unwrap_err()] {
            assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{error}");
            assert!(error.to_string().contains("in the table dlock_meta too"), "{error}");
        }
    }
    assert_eq!(here.ready("store").await.unwrap().findings, [""; 0]);
    // Two accounts that cannot read each other's tables.
    database.change("INSERT INTO other_meta SELECT * FROM dlock_meta WHERE name LIKE 'way:%'").await;
    for (registry, other) in [(&here, "other_meta"), (&there, "dlock_meta")] {
        cycle(registry).await.unwrap();
        let findings = registry.ready("store").await.unwrap().findings;
        assert!(findings.len() == 1 && findings[0].contains("counted apart"), "{findings:?}");
        assert!(findings[0].contains(&format!("in the table {other} too")), "{findings:?}");
    }
}

async fn rows_of_one_table_under_two_prefixes_exclude_each_other_and_a_probe_says_so(database: Database) {
    database.change("CREATE TABLE stock (id BIGINT PRIMARY KEY)").await;
    database.change("INSERT INTO stock VALUES (7)").await;
    let words = "way=row&table=stock&column=id";
    let here = connect(&database, words).await;
    let there = connect(&database, &format!("{words}&table_prefix=other_")).await;
    let row = |registry: &Registry| registry.lock(dlock::Key::new().value(&7)).ttl(TTL).wait(dlock::Wait::None);
    row(&there).acquire().await.unwrap().release().await.unwrap();
    let held = row(&here).acquire().await.unwrap();
    assert_eq!(*row(&there).acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    held.release().await.unwrap();
    let findings = here.ready("store").await.unwrap().findings;
    assert!(findings.iter().any(|text| text.contains("counted apart") && text.contains("other_meta")), "{findings:?}");
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
