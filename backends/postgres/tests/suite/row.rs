//! Row locks, as the suite reaches them.

use std::any::Any;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Hold, LockKey, Result};
use dlock_postgres::row;
use dlock_store::Clock;
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

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?way=row&sweep_every=1m&connect_timeout=4s", self.served.url());
        Some(Box::pin(async move { Ok(Arc::new(row::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let held = format!("SELECT 'held by ' || note FROM dlock_rows WHERE {}", held(key));
        let locked = format!(
            "SELECT 'locked' FROM dlock_row_keys k WHERE k.k = '{key}' AND NOT EXISTS ( \
             SELECT FROM (SELECT 1 FROM dlock_row_keys l WHERE l.k = '{key}' FOR UPDATE SKIP LOCKED) free)"
        );
        let waits = format!("SELECT 'a wait' FROM dlock_rows WHERE k LIKE '!waits:%' AND long_key = '{key}'");
        Box::pin(async move {
            let mut found = self.served.lines(held).await?;
            found.extend(self.served.lines(waits).await?);
            found.extend(self.served.lines(locked).await?);
            Ok(found)
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let end = format!("SELECT pg_terminate_backend(session::int) FROM dlock_rows WHERE {}", held(key));
        Some(Box::pin(async move { self.served.ask(end).await.map(drop) }))
    }

    fn work<'a>(&'a self, hold: &'a Hold) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            let make = || self.served.ask("CREATE TABLE IF NOT EXISTS worked (token BIGINT PRIMARY KEY)".into());
            // The server refuses one of two that make it at once; then it is there.
            if make().await.is_err() {
                make().await?;
            }
            let mut transaction = row::transaction(hold.shared_session().unwrap())?;
            let insert = sqlx::query("INSERT INTO worked VALUES ($1)").bind(token(hold));
            insert.execute(&mut *transaction.conn().await?).await.unwrap();
            Ok(())
        }))
    }

    fn is_final<'a>(&'a self, hold: &'a Hold) -> Option<BoxFuture<'a, Result<bool>>> {
        let sql = format!("SELECT token FROM worked WHERE token = {}", token(hold));
        Some(Box::pin(async move { Ok(!self.served.lines(sql).await?.is_empty()) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

fn token(hold: &Hold) -> i64 {
    hold.token.unwrap().get().cast_signed()
}

fn held(key: &LockKey) -> String {
    format!("long_key = '{key}' AND xact > 0 AND pg_xact_status(xact::text::xid8) = 'in progress'")
}
