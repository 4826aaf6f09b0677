//! Row locks, as the suite reaches them.

use std::any::Any;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Clock, LockKey, Result};
use dlock_postgres::row;
use dlock_testkit::conformance::Served;
use futures::future::BoxFuture;

/// `SELECT … FOR UPDATE`.
pub(crate) struct Rows {
    pub(crate) served: Served,
}

impl Store for Rows {
    fn name(&self) -> String {
        "postgres-row".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = format!("{}?way=row", self.served.url());
        Box::pin(async move { Ok(Arc::new(row::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let held = format!("SELECT 'held by ' || note FROM dlock_rows WHERE {}", held(key));
        let locked = format!(
            "SELECT 'locked' FROM dlock_row_keys k WHERE k.k = '{key}' AND NOT EXISTS ( \
             SELECT FROM (SELECT 1 FROM dlock_row_keys l WHERE l.k = '{key}' FOR UPDATE SKIP LOCKED) free)"
        );
        Box::pin(async move {
            let mut found = self.served.lines(held).await?;
            found.extend(self.served.lines(locked).await?);
            Ok(found)
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let end = format!("SELECT pg_terminate_backend(session::int) FROM dlock_rows WHERE {}", held(key));
        Some(Box::pin(async move { self.served.ask(end).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

fn held(key: &LockKey) -> String {
    format!("long_key = '{key}' AND xact > 0 AND pg_xact_status(xact::text::xid8) = 'in progress'")
}
