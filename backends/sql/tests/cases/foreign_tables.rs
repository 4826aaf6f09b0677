//! Tables that are not dlock's, under its names: what is the same on every server.

use std::fmt::Debug;

use dlock::{ErrorKind, Key, LockKey, Result};
use dlock_contract::{Backend, Released};
use dlock_testkit::holds::{claim_on, take};

use super::kit::{Database, TTL, try_open};
use crate::{named_kit, row_kit};

/// The store was refused because of a table, and an operator can make the right one from the text alone.
pub(crate) fn is_mismatch<T: Debug>(opened: Result<T>, wrong: &str, shipped: &str) {
    let error = opened.expect_err(wrong);
    assert_eq!(*error.kind(), ErrorKind::SchemaMismatch, "{wrong}: {error}");
    assert!(!error.is_retryable() && error.to_string().contains(shipped.trim()), "{wrong}: {error}");
}

/// Each of these tables, which only some of the ways have, is refused if it is another one, or if a part of its definition
/// differs. `open` opens the way that has the table.
pub(crate) async fn each_way_refuses_tables_of_somebody_else(
    database: &Database,
    tables: &[(&str, &str)],
    (from, to): (&str, &str),
    open: impl AsyncFn(&str) -> Result<()>,
) {
    for (name, shipped) in tables {
        let wrong = format!("CREATE TABLE {name} (id INT PRIMARY KEY, title VARCHAR(20))");
        for wrong in [wrong, shipped.replacen(from, to, 1)] {
            assert_ne!(wrong, *shipped);
            database.change(&wrong).await;
            is_mismatch(open(name).await, &wrong, shipped);
            assert_eq!(database.number(&format!("SELECT COUNT(*) FROM {name}")).await, 0);
            database.change(&format!("DROP TABLE {name}")).await;
        }
    }
}

/// As a deployment does it, before the program with fewer rights starts.
pub(crate) async fn each_way_uses_tables_of_a_migration_tool(database: &Database, rights: &[(&str, &str)]) {
    let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let migrator = sqlx::migrate::Migrator::new(files).await.unwrap();
    migrator.run(&mut database.connect().await).await.unwrap();
    let url = database.account_with(rights).await;
    let lease = try_open(&url).await.unwrap();
    lease.ready().await.unwrap();
    let named = named_kit::open_at(&url).await;
    named.ready().await.unwrap();
    let rows = row_kit::open(&url).await.unwrap();
    rows.ready().await.unwrap();
    let claim = |way: &str| claim_on(&LockKey::new(way, Key::text("a")).unwrap(), TTL, |_| ());
    assert_eq!(lease.release(&take(&lease, &claim("lease")).await).await.unwrap(), Released::Released);
    assert_eq!(named.release(&take(&named, &claim("named")).await).await.unwrap(), Released::Released);
    assert_eq!(rows.release(&take(&rows, &claim("row")).await).await.unwrap(), Released::Released);
}
