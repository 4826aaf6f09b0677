//! One set of servers for all tests: given from outside by `cargo xtask test`, or started here on first use.

use std::sync::OnceLock;
use std::{env, thread};

use super::{Etcd, Instance, MariaDb, MySql, Redis};
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
    slots: [OnceLock<Result<Instance, String>>; KINDS.len()],
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

    /// The variables under which a child process finds the servers that were started here.
    pub(crate) fn started(&self) -> Vec<(&'static str, String)> {
        let running = |slot: &OnceLock<Result<Instance, String>>| slot.get()?.as_ref().ok().map(Instance::url);
        KINDS.iter().zip(&self.slots).filter_map(|(kind, slot)| Some((kind.variable, running(slot)?))).collect()
    }

    fn url(&self, kind: usize) -> Result<String> {
        if let Ok(url) = env::var(KINDS[kind].variable) {
            return Ok(url);
        }
        let instance = self.slots[kind].get_or_init(|| (KINDS[kind].start)().map_err(|error| error.to_string()));
        instance.as_ref().map(Instance::url).map_err(Error::new)
    }
}

/// A whole set, to be handed to other processes. It ends when dropped.
pub struct SharedSet(Vec<(&'static str, Instance)>);

impl SharedSet {
    /// Starts one server of each kind, side by side.
    pub fn start() -> Result<Self> {
        let started: Vec<_> = thread::scope(|scope| {
            let starting = KINDS.map(|kind| (kind.variable, scope.spawn(kind.start)));
            starting.map(|(variable, start)| (variable, start.join())).into()
        });
        let join = |result: thread::Result<_>| result.map_err(|_| Error::new("a start panicked"))?;
        started.into_iter().map(|(variable, start)| Ok((variable, join(start)?))).collect::<Result<_>>().map(Self)
    }

    /// The environment variables that [`shared`] looks at, and the URLs.
    pub fn env(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|(variable, instance)| (*variable, instance.url()))
    }
}

#[derive(Clone, Copy)]
struct Kind {
    variable: &'static str,
    start: fn() -> Result<Instance>,
}

const KINDS: [Kind; 4] = [
    Kind { variable: "DLOCK_TEST_REDIS", start: || Instance::start(Redis::default()) },
    Kind { variable: "DLOCK_TEST_MARIADB", start: || Instance::start(MariaDb::default()) },
    Kind { variable: "DLOCK_TEST_MYSQL", start: || Instance::start(MySql::default()) },
    Kind { variable: "DLOCK_TEST_ETCD", start: || Instance::start(Etcd::default()) },
];
