//! The conformance suite over lease rows, on PostgreSQL.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Clock, LockKey, Result};
use dlock_testkit::conformance::{self, Served};
use dlock_testkit::servers::Postgres;
use futures::future::BoxFuture;

fn main() -> ExitCode {
    conformance::main(&[("postgres", || Ok(Box::new(Server { served: Served::start(Postgres::default())? })))])
}

struct Server {
    served: Served,
}

impl Store for Server {
    fn name(&self) -> String {
        "postgres".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.served.url();
        Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let held = format!(
            "SELECT 'held by ' || note FROM dlock_locks WHERE '{key}' IN (k, long_key) AND owner IS NOT NULL \
             AND expires_us > extract(epoch FROM clock_timestamp()) * 1000000"
        );
        Box::pin(self.served.lines(held))
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let take = format!("UPDATE dlock_locks SET owner = NULL, expires_us = 0 WHERE k = '{key}'");
        Some(Box::pin(async move { self.served.ask(take).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}
