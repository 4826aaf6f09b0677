//! The stores, and what differs between them here.

use std::time::Duration;

use dlock_testkit::Result;
use dlock_testkit::servers::{Etcd, Instance, MariaDb, MySql, Redis, shared};

/// A store that locks are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Sqlite,
    Redis,
    MariaDb,
    MySql,
    Etcd,
}

/// All of them.
pub(crate) const ALL: [Store; 6] =
    [Store::Memory, Store::Sqlite, Store::Redis, Store::MariaDb, Store::MySql, Store::Etcd];

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
            Self::Etcd => "etcd",
        }
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
        matches!(self, Self::MariaDb | Self::MySql)
    }

    /// How much later than promised to all a dead holder's lock is free, by the store's own documentation.
    pub(crate) fn takeover_delay(self) -> Duration {
        // etcd looks for expired leases now and then.
        if self == Self::Etcd { Duration::from_secs(2) } else { Duration::ZERO }
    }

    /// The server that all trials share; `None` where there is no server.
    pub(crate) fn shared_url(self) -> Result<Option<String>> {
        match self {
            Self::Memory | Self::Sqlite => Ok(None),
            Self::Redis => shared().redis().map(Some),
            Self::MariaDb => shared().mariadb().map(Some),
            Self::MySql => shared().mysql().map(Some),
            Self::Etcd => shared().etcd().map(Some),
        }
    }

    /// A server for one trial alone.
    pub(crate) fn start(self) -> Result<Option<Instance>> {
        match self {
            Self::Memory | Self::Sqlite => Ok(None),
            Self::Redis => Instance::start(Redis::default()).map(Some),
            Self::MariaDb => Instance::start(MariaDb::default()).map(Some),
            Self::MySql => Instance::start(MySql::default()).map(Some),
            Self::Etcd => Instance::start(Etcd::default()).map(Some),
        }
    }
}
