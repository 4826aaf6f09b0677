//! One set of servers for all tests: given from outside by `cargo xtask test`, or started here on first use.

use std::sync::OnceLock;
use std::{env, thread};

use super::{Consul, Etcd, Instance, MariaDb, MySql, Postgres, Redis, ZooKeeper, redis, redlock_url};
use crate::{Error, Result};

/// The servers that all tests of this process share.
pub fn shared() -> &'static Shared {
    static SHARED: Shared = Shared { slots: [const { OnceLock::new() }; KINDS.len()] };
    &SHARED
}

/// Access to the shared servers, see [`shared`].
///
/// Instances started here are never dropped: they end with the process, and the next one removes their folders.
pub struct Shared {
    slots: [OnceLock<Result<Vec<Instance>, String>>; KINDS.len()],
}

impl Shared {
    /// A Redis without persistence, as `redis://127.0.0.1:PORT/`.
    pub fn redis(&self) -> Result<String> {
        self.url(0)
    }

    /// A MariaDB, as `mysql://root@127.0.0.1:PORT/test`.
    pub fn mariadb(&self) -> Result<String> {
        self.url(1)
    }

    /// A MySQL, as `mysql://root@127.0.0.1:PORT/test`.
    pub fn mysql(&self) -> Result<String> {
        self.url(2)
    }

    /// An etcd, as `http://127.0.0.1:PORT`.
    pub fn etcd(&self) -> Result<String> {
        self.url(3)
    }

    /// Five independent Redis servers that forget nothing, as `redlock://127.0.0.1:PORT,…/`.
    pub fn redlock(&self) -> Result<String> {
        self.url(4)
    }

    /// A PostgreSQL, as `postgres://dlock@127.0.0.1:PORT/postgres`.
    pub fn postgres(&self) -> Result<String> {
        self.url(5)
    }

    /// A ZooKeeper, as `zk://127.0.0.1:PORT`.
    pub fn zookeeper(&self) -> Result<String> {
        self.url(6)
    }

    /// A Consul, as `consul://127.0.0.1:PORT`.
    pub fn consul(&self) -> Result<String> {
        self.url(7)
    }

    /// A URL for each store that has a server, and for each way to lock in it.
    pub fn stores(&self) -> Result<Vec<String>> {
        let sql = [self.mysql()?, self.mariadb()?, self.postgres()?];
        let ways = sql.iter().flat_map(|url| ["lease", "row", "named"].map(|way| format!("{url}?way={way}")));
        let etcd = self.etcd()?.replace("http://", "etcd://");
        Ok(ways.chain([self.redis()?, self.redlock()?, etcd, self.zookeeper()?, self.consul()?]).collect())
    }

    /// The variables under which a child process finds the servers that were started here.
    pub(crate) fn started(&self) -> Vec<(&'static str, String)> {
        let running = self.slots.iter().map(|slot| slot.get()?.as_ref().ok());
        KINDS.iter().zip(running).filter_map(|(kind, running)| Some((kind.variable, (kind.url)(running?)))).collect()
    }

    fn url(&self, kind: usize) -> Result<String> {
        if let Ok(url) = env::var(KINDS[kind].variable) {
            return Ok(url);
        }
        let instances = self.slots[kind].get_or_init(|| (KINDS[kind].start)().map_err(|error| error.to_string()));
        instances.as_ref().map(|instances| (KINDS[kind].url)(instances)).map_err(Error::new)
    }
}

/// A whole set, to be handed to other processes. It ends when dropped.
pub struct SharedSet(Vec<(Kind, Vec<Instance>)>);

impl SharedSet {
    /// Starts one server of each kind, side by side.
    pub fn start() -> Result<Self> {
        let started: Vec<_> = thread::scope(|scope| {
            let starting = KINDS.map(|kind| (kind, scope.spawn(kind.start)));
            starting.map(|(kind, start)| (kind, start.join())).into()
        });
        let join =
            |result: thread::Result<Result<Vec<Instance>>>| result.map_err(|_| Error::new("a start panicked"))?;
        started.into_iter().map(|(kind, start)| Ok((kind, join(start)?))).collect::<Result<_>>().map(Self)
    }

    /// The environment variables that [`shared`] looks at, and the URLs.
    pub fn env(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|(kind, instances)| (kind.variable, (kind.url)(instances)))
    }
}

impl Drop for SharedSet {
    /// Side by side: after a run of all tests the folders of the SQL servers hold tens of thousands of files.
    fn drop(&mut self) {
        thread::scope(|scope| self.0.drain(..).for_each(|(_, instances)| drop(scope.spawn(|| drop(instances)))));
    }
}

#[derive(Clone, Copy)]
struct Kind {
    variable: &'static str,
    start: fn() -> Result<Vec<Instance>>,
    url: fn(&[Instance]) -> String,
}

const KINDS: [Kind; 8] = [
    Kind { variable: "DLOCK_TEST_REDIS", start: || Instance::start_all([Redis::default()]), url: one },
    Kind { variable: "DLOCK_TEST_MARIADB", start: || Instance::start_all([MariaDb::default()]), url: one },
    Kind { variable: "DLOCK_TEST_MYSQL", start: || Instance::start_all([MySql::default()]), url: one },
    Kind { variable: "DLOCK_TEST_ETCD", start: || Instance::start_all([Etcd::default()]), url: one },
    Kind { variable: "DLOCK_TEST_REDLOCK", start: redis::five, url: redlock_url },
    Kind { variable: "DLOCK_TEST_POSTGRES", start: || Instance::start_all([Postgres::default()]), url: one },
    Kind { variable: "DLOCK_TEST_ZOOKEEPER", start: || Instance::start_all([ZooKeeper::default()]), url: one },
    Kind { variable: "DLOCK_TEST_CONSUL", start: || Instance::start_all([Consul::default()]), url: one },
];

fn one(instances: &[Instance]) -> String {
    instances.first().map(Instance::url).unwrap_or_default()
}
