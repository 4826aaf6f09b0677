//! Stores with a server and a proxy of their own.

use std::any::Any;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, LockKey, Result};
use dlock_store::Clock;
use dlock_testkit::conformance::Served;
use dlock_testkit::holds::name_in_redis;
use dlock_testkit::servers::{MySql, Postgres, Redis};
use futures::future::BoxFuture;

pub(crate) fn redis() -> Result<Box<dyn Store>, String> {
    Ok(of_redis(Arc::new(Served::start(Redis::default())?)))
}

pub(crate) fn of_redis(served: Arc<Served>) -> Box<dyn Store> {
    Box::new(Server { kind: Kind::Redis, served })
}

pub(crate) fn mysql() -> Result<Box<dyn Store>, String> {
    Ok(Box::new(Server { kind: Kind::MySql, served: Arc::new(Served::start(MySql::default())?) }))
}

pub(crate) fn postgres() -> Result<Box<dyn Store>, String> {
    Ok(Box::new(Server { kind: Kind::Postgres, served: Arc::new(Served::start(Postgres::default())?) }))
}

struct Server {
    kind: Kind,
    served: Arc<Served>,
}

#[derive(Clone, Copy)]
enum Kind {
    Redis,
    MySql,
    Postgres,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// Asks the server what is there for a key.
    fn found(self, key: &LockKey) -> String {
        match self {
            Self::Redis => format!("KEYS {}*", name_in_redis(key)),
            Self::MySql => format!(
                "SELECT CONCAT('held by ', note) FROM test.dlock_locks WHERE '{key}' IN (k, long_key) AND owner IS NOT \
                 NULL AND expires_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
            ),
            Self::Postgres => format!(
                "SELECT 'held by ' || note FROM dlock_locks WHERE '{key}' IN (k, long_key) AND owner IS NOT NULL \
                 AND expires_us > extract(epoch FROM clock_timestamp()) * 1000000"
            ),
        }
    }

    fn free(self, key: &LockKey) -> String {
        match self {
            Self::Redis => format!("DEL {}", name_in_redis(key)),
            Self::MySql => format!("UPDATE test.dlock_locks SET owner = NULL, expires_us = 0 WHERE k = '{key}'"),
            Self::Postgres => format!("UPDATE dlock_locks SET owner = NULL, expires_us = 0 WHERE k = '{key}'"),
        }
    }
}

impl Server {
    fn open_at(&self, url: String, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let kind = self.kind;
        Box::pin(async move {
            Ok(match kind {
                Kind::Redis => Arc::new(dlock_redis::Redis::connect(&url, &clock).await?) as Arc<dyn Backend>,
                Kind::MySql => Arc::new(dlock_mysql::lease::open(&url, &clock).await?),
                Kind::Postgres => Arc::new(dlock_postgres::open(&url, &clock).await?),
            })
        })
    }
}

impl Store for Server {
    fn name(&self) -> String {
        self.kind.name().into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        self.open_at(self.served.url(), clock)
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let option = match self.kind {
            Kind::Redis => "restart_guard=off",
            Kind::MySql | Kind::Postgres => "max_connections=3",
        };
        Some(self.open_at(format!("{}?{option}", self.served.url()), clock))
    }

    /// The record of runs in Redis is meant to stay.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async move {
            let mut found = self.served.lines(self.kind.found(key)).await?;
            found.retain(|line| !line.ends_with("}:r"));
            Ok(found)
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move { self.served.ask(self.kind.free(key)).await.map(drop) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}
