//! A server that ends silent sessions earlier than the kind of server may.

use std::time::Duration;

use dlock::{Error, ErrorKind, distributed_lock};
use dlock_testkit::servers::{Instance, MariaDb, MySql, Recipe};

use crate::server::Database;

/// The longest silence that the server allows, in seconds.
const LONGEST: u64 = 100;

/// Never called: `verify()` looks at it.
#[distributed_lock(key = "<job>", ttl = "101s", backend = "rows")]
async fn work(job: u64) -> Result<u64, Error> {
    Ok(job)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_a_mysql_refuses_is_refused_at_its_first_use_and_by_the_check_at_the_start() {
    a_ttl_that_is_too_long_is_told(MySql { extra: vec![limit()] }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_a_mariadb_refuses_is_refused_at_its_first_use_and_by_the_check_at_the_start() {
    a_ttl_that_is_too_long_is_told(MariaDb { extra: vec![limit()] }).await;
}

fn limit() -> String {
    format!("--maximum-wait-timeout={LONGEST}")
}

async fn a_ttl_that_is_too_long_is_told(recipe: impl Recipe) {
    let server = tokio::task::spawn_blocking(move || Instance::start(recipe)).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "limited").await;
    for way in ["named", "row"] {
        a_ttl_that_is_too_long_for(way, &database).await;
    }
}

async fn a_ttl_that_is_too_long_for(way: &str, database: &Database) {
    let registry = dlock::Registry::new();
    registry.connect("rows", &format!("{}?way={way}", database.url())).await.unwrap();
    // Each namespace has one way.
    registry.configure(|defaults| defaults.namespace = way.into()).unwrap();
    let found = || {
        let found = registry.verify().err()?;
        found.iter().find(|(site, _)| site.name().ends_with("longest_ttl::work")).map(|(_, error)| error.to_string())
    };
    let take = |ttl| registry.lock("a").backend("rows").ttl(Duration::from_secs(ttl)).acquire();
    // Before that, only the limit of this kind of server is known.
    assert_eq!(found(), None);
    let error = take(LONGEST + 1).await.unwrap_err();
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(LONGEST));
    assert_eq!(*error.kind(), ErrorKind::TtlOutOfRange { min, max }, "{error}");
    assert!(!error.is_retryable() && error.to_string().contains("after 100 s at the latest"), "{error}");
    assert!(found().unwrap().contains("after 100 s at the latest"), "{:?}", found());
    take(LONGEST).await.unwrap().release().await.unwrap();
    assert!(found().is_some(), "another ttl was granted");
}
