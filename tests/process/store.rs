//! The stores, and their differences in these trials.

use std::time::Duration;

use dlock::Registry;
use dlock_testkit::Result;
use dlock_testkit::servers::{
    Consul, Etcd, Instance, MariaDb, MySql, Postgres, Redis, ZooKeeper, as_shipped, redlock_url, shared,
};

use crate::arena::{TTL, answered};

/// A ttl for locks that no trial waits for.
pub(crate) const LONG: &str = "10m";

/// A store that locks are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis,
    Redlock,
    MariaDb,
    MySql,
    MariaDbNamed,
    MySqlNamed,
    MariaDbRow,
    MySqlRow,
    Postgres,
    PostgresNamed,
    PostgresRow,
    Etcd,
    ZooKeeper,
    Consul,
    /// Redis as the gate of a lease row in MariaDB.
    Paired,
}

/// All of them.
pub(crate) const ALL: [Store; 17] = [
    Store::Memory,
    Store::Sqlite,
    Store::Redis,
    Store::Redlock,
    Store::MariaDb,
    Store::MySql,
    Store::MariaDbNamed,
    Store::MySqlNamed,
    Store::MariaDbRow,
    Store::MySqlRow,
    Store::Postgres,
    Store::PostgresNamed,
    Store::PostgresRow,
    Store::Etcd,
    Store::ZooKeeper,
    Store::Consul,
    Store::Paired,
];

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Redlock => "redlock",
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
            Self::MariaDbNamed => "mariadb-named",
            Self::MySqlNamed => "mysql-named",
            Self::MariaDbRow => "mariadb-row",
            Self::MySqlRow => "mysql-row",
            Self::Postgres => "postgres",
            Self::PostgresNamed => "postgres-named",
            Self::PostgresRow => "postgres-row",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
            Self::Consul => "consul",
            Self::Paired => "paired",
        }
    }

    /// Does it take part without `--all` too? Each way of MySQL and MariaDB does on one of the two servers. On the other one the
    /// conformance suite runs.
    pub(crate) fn is_in_every_run(self) -> bool {
        !matches!(self, Self::MariaDb | Self::MySqlNamed | Self::MySqlRow)
    }

    /// Can two processes meet in it?
    pub(crate) fn is_shared(self) -> bool {
        self != Self::Memory
    }

    /// Is there a network between it and its clients?
    pub(crate) fn is_remote(self) -> bool {
        !matches!(self, Self::Memory | Self::Sqlite)
    }

    /// Is a lock bound to one connection, and lost with it?
    pub(crate) fn is_session(self) -> bool {
        matches!(self, Self::MariaDbNamed | Self::MySqlNamed | Self::PostgresNamed) || self.is_row_lock()
    }

    /// Is a lock a transaction, in which the body may work?
    pub(crate) fn is_row_lock(self) -> bool {
        matches!(self, Self::MariaDbRow | Self::MySqlRow | Self::PostgresRow)
    }

    /// Does it take part in the trials of permits and several locks in one call?
    pub(crate) fn has_permits(self) -> bool {
        self.has_readers() || self == Self::Consul
    }

    /// And of readers and writers?
    pub(crate) fn has_readers(self) -> bool {
        matches!(self, Self::Etcd | Self::ZooKeeper)
    }

    /// Can callers of one process pass a hold on?
    pub(crate) fn passes_holds_on(self) -> bool {
        matches!(self, Self::Memory | Self::Redis)
    }

    /// Does it keep the notes of those who wait?
    pub(crate) fn names_waiters(self) -> bool {
        matches!(self, Self::Memory | Self::Redis | Self::Etcd | Self::ZooKeeper)
    }

    /// The most sessions, or connections, that two processes keep open for their next requests: the pools of two runtimes each, and the
    /// connections for renewals.
    pub(crate) fn most_sessions(self) -> usize {
        match self {
            Self::MariaDb
            | Self::MySql
            | Self::Postgres
            | Self::MariaDbRow
            | Self::MySqlRow
            | Self::PostgresRow
            | Self::Paired => 2 * (2 * 8 + 2),
            // Idle ones, and the list of sessions.
            Self::Consul => 2 * (8 + 1),
            _ => 0,
        }
    }

    /// How much later than promised to all a dead holder's lock is free, by the store's own documentation.
    pub(crate) fn takeover_delay(self) -> Duration {
        match self {
            // It looks for expired leases now and then.
            Self::Etcd => Duration::from_secs(2),
            // The shortest session of these servers, and a tick.
            Self::ZooKeeper => Duration::from_millis(500),
            // The servers wait for twice the ttl.
            Self::Consul => TTL + Duration::from_secs(1),
            // Waiters ask again after 2 s at most, and may meet each other.
            Self::Redlock => Duration::from_secs(2),
            _ => Duration::ZERO,
        }
    }

    /// The server that all trials share; `None` where there is no server.
    pub(crate) fn shared_url(self) -> Result<Option<String>> {
        match self {
            Self::Memory | Self::Sqlite => Ok(None),
            Self::Redis => shared().redis().map(Some),
            Self::Redlock => shared().redlock().map(|url| Some(format!("{url}?max_ttl={LONG}"))),
            Self::MariaDb | Self::MariaDbNamed | Self::MariaDbRow => shared().mariadb().map(Some),
            Self::MySql | Self::MySqlNamed | Self::MySqlRow => shared().mysql().map(Some),
            Self::Postgres | Self::PostgresNamed | Self::PostgresRow => shared().postgres().map(Some),
            Self::Etcd => shared().etcd().map(Some),
            Self::ZooKeeper => shared().zookeeper().map(Some),
            Self::Consul => shared().consul().map(Some),
            Self::Paired => Ok(Some(pair_of(&[shared().redis()?, shared().mariadb()?]))),
        }
    }

    /// The ttl of the workers among random faults: with the settings that their servers have by default, these stores refuse shorter ones.
    pub(crate) fn workers_ttl(self) -> Duration {
        match self {
            Self::Consul => Duration::from_secs(10),
            Self::ZooKeeper => Duration::from_secs(4),
            Self::Etcd => Duration::from_secs(2),
            // Nearly everything happens in parts of it.
            _ => Duration::from_secs(1),
        }
    }

    /// Whether a server that is killed forgets who holds its locks: see `docs/promises.md`.
    pub(crate) fn forgets(self) -> bool {
        self == Self::Redis || self.is_session()
    }

    /// Whether an operator who ends a session, or what stands for it in the store, ends the locks of its client.
    pub(crate) fn ends_with_sessions(self) -> bool {
        self.is_session() || matches!(self, Self::Etcd | Self::Consul)
    }

    /// A server for random faults, with the settings that it has by itself; none where there is no server.
    pub(crate) fn start_as_shipped(self) -> Result<Vec<Instance>> {
        Ok(vec![match self {
            Self::Redis => Instance::start(as_shipped(Redis::default()))?,
            // A fault of one of them leaves a majority.
            Self::Redlock => return Instance::start_all([(); 3].map(|()| as_shipped(Redis::default()))),
            Self::MariaDb | Self::MariaDbNamed | Self::MariaDbRow => Instance::start(as_shipped(MariaDb::default()))?,
            Self::MySql | Self::MySqlNamed | Self::MySqlRow => Instance::start(as_shipped(MySql::default()))?,
            Self::Postgres | Self::PostgresNamed | Self::PostgresRow => {
                Instance::start(as_shipped(Postgres::default()))?
            }
            Self::Etcd => Instance::start(as_shipped(Etcd::default()))?,
            // Its recipe changes these for tests, and the last word counts.
            Self::ZooKeeper => {
                let settings =
                    ["tickTime=2000", "minSessionTimeout=4000", "maxSessionTimeout=40000", "maxClientCnxns=60"];
                Instance::start(ZooKeeper { settings: settings.map(str::to_owned).into(), ..ZooKeeper::default() })?
            }
            Self::Consul => {
                let extra = vec!["-hcl=session_ttl_min=\"10s\"".to_owned()];
                Instance::start(as_shipped(Consul { extra, ..Consul::default() }))?
            }
            Self::Paired => {
                return Ok(vec![
                    Instance::start(as_shipped(Redis::default()))?,
                    Instance::start(as_shipped(MariaDb::default()))?,
                ]);
            }
            Self::Memory | Self::Sqlite => return Ok(Vec::new()),
        }])
    }

    /// Servers for one trial alone; none where there is no server.
    pub(crate) fn start(self) -> Result<Vec<Instance>> {
        match self {
            Self::Memory | Self::Sqlite => Ok(Vec::new()),
            Self::Redis => Instance::start_all([Redis::default()]),
            // Nodes that forget have no vote for the first minute.
            Self::Redlock => Instance::start_all([(); 5].map(|()| Redis { aof_always: true, ..Redis::default() })),
            Self::MariaDb | Self::MariaDbNamed | Self::MariaDbRow => Instance::start_all([MariaDb::default()]),
            Self::MySql | Self::MySqlNamed | Self::MySqlRow => Instance::start_all([MySql::default()]),
            Self::Postgres | Self::PostgresNamed | Self::PostgresRow => Instance::start_all([Postgres::default()]),
            Self::Etcd => Instance::start_all([Etcd::default()]),
            Self::ZooKeeper => Instance::start_all([ZooKeeper::default()]),
            Self::Consul => Instance::start_all([Consul::default()]),
            Self::Paired => Ok(vec![Instance::start(Redis::default())?, Instance::start(MariaDb::default())?]),
        }
    }

    /// The address of those servers. Nodes of Redlock that forget have no vote for the longest ttl.
    pub(crate) fn url_of(self, servers: &[Instance], max_ttl: &str) -> Option<String> {
        match (self, servers) {
            (Self::Redlock, nodes) => Some(format!("{}?max_ttl={max_ttl}", redlock_url(nodes))),
            (Self::Paired, servers) => Some(pair_of(&servers.iter().map(Instance::url).collect::<Vec<_>>())),
            (_, servers) => servers.first().map(Instance::url),
        }
    }
}

/// The words of a pair: both stores, and what is made of them; see [`connect`].
fn pair_of(urls: &[String]) -> String {
    format!("{} paired://?gate=first&authority=second", urls.join(" "))
}

/// Opens a store. Its words are a URL, or the URLs of two stores and one that names them `first` and `second`.
pub(crate) async fn connect(registry: &Registry, words: &str) -> dlock::Result<()> {
    let words: Vec<&str> = words.split(' ').collect();
    // On a busy machine a server may be late here too.
    let open = async |name: &str, url: &str| answered(async || registry.connect(name, url).await).await;
    if let [first, second, _] = words[..] {
        open("first", first).await?;
        open("second", second).await?;
    }
    open("store", words[words.len() - 1]).await?;
    registry.set_default("store")
}
