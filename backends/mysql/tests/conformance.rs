//! The conformance suite over all ways: on MySQL, and with `cargo xtask test --all` on MariaDB too.

#[path = "suite/row.rs"]
mod row;

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;

use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, LockKey, Result};
use dlock_mysql::{lease, named};
use dlock_store::Clock;
use dlock_testkit::conformance::{self, Served};
use dlock_testkit::servers::{MariaDb, MySql, as_shipped};
use futures::future::BoxFuture;
use row::Rows;

fn main() -> ExitCode {
    // Each way on MySQL. ShedLock's layout runs on PostgreSQL, and on MariaDB the cases of `store/` that are the same on every server.
    let stores: [(&str, conformance::Start); 3] = [
        ("mysql", || Ok(Box::new(Leases { name: "mysql", served: Served::start(MySql::default())? }))),
        ("mysql-named", || Ok(Box::new(Named { name: "mysql-named", served: Served::start(MySql::default())? }))),
        ("mysql-row", || Ok(Box::new(Rows { name: "mysql-row", served: Served::start(MySql::default())? }))),
    ];
    let further: [(&str, conformance::Start); 7] = [
        ("mysql-shedlock", || {
            Ok(Box::new(Shedlock { name: "mysql-shedlock", served: Served::start(MySql::default())? }))
        }),
        ("mysql-as-shipped", || {
            let served = Served::start(as_shipped(MySql::default()))?;
            Ok(Box::new(Leases { name: "mysql-as-shipped", served }))
        }),
        ("mariadb-as-shipped", || {
            let served = Served::start(as_shipped(MariaDb::default()))?;
            Ok(Box::new(Leases { name: "mariadb-as-shipped", served }))
        }),
        ("mariadb", || Ok(Box::new(Leases { name: "mariadb", served: Served::start(MariaDb::default())? }))),
        ("mariadb-shedlock", || {
            Ok(Box::new(Shedlock { name: "mariadb-shedlock", served: Served::start(MariaDb::default())? }))
        }),
        ("mariadb-named", || Ok(Box::new(Named { name: "mariadb-named", served: Served::start(MariaDb::default())? }))),
        ("mariadb-row", || Ok(Box::new(Rows { name: "mariadb-row", served: Served::start(MariaDb::default())? }))),
    ];
    conformance::main_and(&stores, &further)
}

/// Lease rows.
struct Leases {
    name: &'static str,
    served: Served,
}

impl Store for Leases {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.served.url();
        Box::pin(async move { Ok(Arc::new(lease::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?max_connections=3", self.served.url());
        Some(Box::pin(async move { Ok(Arc::new(lease::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(async move { Ok(Arc::new(named::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let held = format!(
            "SELECT CONCAT('held by ', note) FROM test.dlock_locks WHERE '{key}' IN (k, long_key) AND owner IS NOT NULL \
             AND expires_us > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        );
        Box::pin(self.served.lines(held))
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let take = format!("UPDATE test.dlock_locks SET owner = NULL, expires_us = 0 WHERE k = '{key}'");
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
    name: &'static str,
    served: Served,
}

impl Store for Shedlock {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = format!("{}?layout=shedlock&shedlock_create=yes", self.served.url());
        Box::pin(async move { Ok(Arc::new(lease::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?layout=shedlock&shedlock_create=yes&max_connections=3", self.served.url());
        Some(Box::pin(async move { Ok(Arc::new(lease::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(async move { Ok(Arc::new(lease::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let Some(name) = literal(key) else { return Box::pin(async { Ok(Vec::new()) }) };
        let held = format!(
            "SELECT CONCAT('held by ', locked_by) FROM test.shedlock WHERE name = '{name}' AND lock_until > UTC_TIMESTAMP(6)"
        );
        Box::pin(self.served.lines(held))
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let name = literal(key)?;
        let take = format!("UPDATE test.shedlock SET lock_until = '2000-01-01' WHERE name = '{name}'");
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
    key.literal().ok().map(|name| name.as_str().replace('\\', "\\\\").replace('\'', "''"))
}

/// `GET_LOCK`.
struct Named {
    name: &'static str,
    served: Served,
}

impl Store for Named {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let url = self.served.url();
        Box::pin(async move { Ok(Arc::new(named::open(&url, &clock).await?) as Arc<dyn Backend>) })
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = format!("{}?sweep_every=1m&connect_timeout=4s", self.served.url());
        Some(Box::pin(async move { Ok(Arc::new(named::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let url = self.served.url();
        Some(Box::pin(async move { Ok(Arc::new(lease::open(&url, &clock).await?) as Arc<dyn Backend>) }))
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        let name = name_of(key);
        Box::pin(async move {
            let held = format!(
                "SELECT CONCAT('held by ', IS_USED_LOCK({name})) FROM DUAL WHERE IS_USED_LOCK({name}) IS NOT NULL"
            );
            let mut found = self.served.lines(held).await?;
            // A waiter is a statement that runs. MySQL cannot show the table of processes while any statement has bytes in it.
            let name = self.served.ask(format!("SELECT {name}")).await?;
            let running = self.served.lines("SHOW FULL PROCESSLIST".into()).await?.into_iter();
            let waiting = running.filter(|line| line.contains("GET_LOCK(") && line.contains(&name));
            found.extend(waiting.map(|line| format!("waited for by {line}")));
            Ok(found)
        })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async move {
            let holder = self.served.ask(format!("SELECT IS_USED_LOCK({})", name_of(key))).await?;
            self.served.ask(format!("KILL {}", holder.trim())).await.map(drop)
        }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        self.served.outage(outage)
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.served.restart()
    }
}

/// The name in the server, as the server itself works it out.
fn name_of(key: &LockKey) -> String {
    format!("CONCAT('d1', LEFT(SHA2('{key}', 256), 62))")
}
