//! The conformance suite over all ways, on PostgreSQL.

#[path = "suite/row.rs"]
mod row;

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, LockKey, Result};
use dlock_store::Clock;
use dlock_testkit::conformance::{self, Served};
use dlock_testkit::servers::PostgresRelease::{self, Eighteen, Fifteen};
use dlock_testkit::servers::{Postgres, as_shipped};
use futures::future::BoxFuture;
use row::Rows;

fn main() -> ExitCode {
    let stores: [(&str, conformance::Start); 4] = [
        ("postgres", || Ok(Box::new(Leases { served: serve(Fifteen)? }))),
        ("postgres-shedlock", || Ok(Box::new(Shedlock { served: serve(Fifteen)? }))),
        ("postgres-named", || Ok(Box::new(Named { served: serve(Fifteen)? }))),
        ("postgres-row", || Ok(Box::new(Rows { served: serve(Fifteen)? }))),
    ];
    let further: [(&str, conformance::Start); 4] = [
        ("postgres-as-shipped", || Ok(Box::new(Leases { served: Served::start(as_shipped(Postgres::default()))? }))),
        ("postgres-18", || Ok(Box::new(Leases { served: serve(Eighteen)? }))),
        ("postgres-18-named", || Ok(Box::new(Named { served: serve(Eighteen)? }))),
        ("postgres-18-row", || Ok(Box::new(Rows { served: serve(Eighteen)? }))),
    ];
    conformance::main_and(&stores, &further)
}

fn serve(release: PostgresRelease) -> Result<Served, String> {
    Served::start(Postgres { release, ..Postgres::default() })
}

/// Lease rows.
struct Leases {
    served: Served,
}

impl Store for Leases {
    fn name(&self) -> String {
        "postgres".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.served.url();
        Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?max_connections=3", self.served.url());
        Some(Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(
            async move { Ok(Arc::new(dlock_postgres::named::open(&url, &clock).await?) as Arc<dyn Backend>) },
        ))
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

/// Lease rows whose holder stands in ShedLock's table.
struct Shedlock {
    served: Served,
}

impl Store for Shedlock {
    fn name(&self) -> String {
        "postgres-shedlock".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = format!("{}?layout=shedlock&shedlock_create=yes", self.served.url());
        Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?layout=shedlock&shedlock_create=yes&max_connections=3", self.served.url());
        Some(Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let Some(name) = literal(key) else { return Box::pin(async { Ok(Vec::new()) }) };
        let held = format!(
            "SELECT 'held by ' || locked_by FROM shedlock WHERE name = '{name}' AND lock_until > timezone('utc', clock_timestamp())"
        );
        Box::pin(self.served.lines(held))
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let name = literal(key)?;
        let take = format!("UPDATE shedlock SET lock_until = '2000-01-01' WHERE name = '{name}'");
        Some(Box::pin(async move { self.served.ask(take).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

/// The name in ShedLock's table, if the key has one, for a statement.
fn literal(key: &LockKey) -> Option<String> {
    key.literal().ok().map(|name| name.as_str().replace('\'', "''"))
}

/// Advisory locks.
struct Named {
    served: Served,
}

impl Store for Named {
    fn name(&self) -> String {
        "postgres-named".into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.served.url();
        Box::pin(async move { Ok(Arc::new(dlock_postgres::named::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?sweep_every=1m&connect_timeout=4s", self.served.url());
        Some(Box::pin(
            async move { Ok(Arc::new(dlock_postgres::named::open(&url, &clock).await?) as Arc<dyn Backend>) },
        ))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(async move { Ok(Arc::new(dlock_postgres::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let found = format!(
            "SELECT CASE WHEN granted THEN 'held by ' ELSE 'waited for by ' END || pid FROM pg_locks WHERE {}",
            of_key(key)
        );
        Box::pin(self.served.lines(found))
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted AND {}", of_key(key));
        Some(Box::pin(async move { self.served.ask(end).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

/// The lock's number, as the server itself works it out.
fn of_key(key: &LockKey) -> String {
    format!(
        "locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = \
         ('x' || left(encode(sha256('{key}'), 'hex'), 16))::bit(64)::bigint"
    )
}
