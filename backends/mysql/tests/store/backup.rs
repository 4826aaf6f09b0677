//! A backup that locks all tables while locks are held.

use std::time::Duration;

use dlock::{ErrorKind, Registry};
use dlock_testkit::wait_until;
use sqlx::Executor;

use crate::server::{Database, Kind};

const TTL: Duration = Duration::from_secs(4);

mod alone {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_backup_of_mariadb_ends_only_the_holds_that_must_write() {
        super::ends_only_holds_that_must_write(super::Kind::MariaDb).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_backup_of_mysql_ends_only_the_holds_that_must_write() {
        super::ends_only_holds_that_must_write(super::Kind::MySql).await;
    }
}

/// `FLUSH TABLES WITH READ LOCK` lets nobody write, and lasts longer than a ttl here. Lease rows are renewed by a write; the other
/// two ways are not.
async fn ends_only_holds_that_must_write(kind: Kind) {
    let server = tokio::task::spawn_blocking(move || kind.start()).await.unwrap().unwrap();
    let database = Database::create(&server.url(), "backup").await;
    // A namespace is locked in one way.
    let mut registries = Vec::new();
    for way in ["lease", "named", "row"] {
        let registry = Registry::new();
        registry.connect("store", &format!("{}?way={way}", database.url())).await.unwrap();
        registry.set_default("store").unwrap();
        registry.configure(|defaults| defaults.namespace = way.into()).unwrap();
        registries.push((way, registry));
    }
    let lock = |way: &str, key: &'static str| {
        let (_, registry) = registries.iter().find(|(name, _)| *name == way).unwrap();
        registry.lock(key).ttl(TTL)
    };
    let named = lock("named", "a").acquire().await.unwrap();
    let row = lock("row", "a").acquire().await.unwrap();
    let lease = lock("lease", "a").acquire().await.unwrap();
    let long = lock("lease", "long").ttl(30 * TTL).acquire().await.unwrap();
    let mut backup = database.connect().await;
    backup.execute("FLUSH TABLES WITH READ LOCK").await.unwrap();
    let refused = async {
        // Their tokens cannot be written. The first one stands in the session of the hold.
        for way in ["named", "row", "lease"] {
            let error = lock(way, "b").try_acquire().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Outage, "{way}: {error}");
        }
    };
    // The passing of two ttls is what is tested.
    tokio::join!(refused, tokio::time::sleep(2 * TTL));
    wait_until("a lease that cannot be written ends", async || lease.check().is_err()).await.unwrap();
    named.confirm().await.unwrap();
    row.confirm().await.unwrap();
    backup.execute("UNLOCK TABLES").await.unwrap();
    for guard in [named, row, long] {
        guard.confirm().await.unwrap();
        guard.release().await.unwrap();
    }
    for way in ["lease", "named", "row"] {
        lock(way, "a").acquire().await.unwrap().release().await.unwrap();
    }
}
