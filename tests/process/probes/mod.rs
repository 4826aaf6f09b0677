//! Asks the servers themselves, with separate clients, what the locks have left there.

mod consul;
mod etcd;
mod mysql;
mod postgres;
mod redis;
mod sqlite;
mod zookeeper;

use std::sync::Arc;

use dlock::backends::memory::Memory;
use dlock::{Key, LockKey};
use futures::future::BoxFuture;

use crate::store::Store;

/// How the names of all locks of a namespace begin.
fn beginning(namespace: &str) -> String {
    LockKey::new(namespace, Key::new()).unwrap().to_string()
}

/// Reads the entries of one namespace in one store.
pub(crate) trait Probe: Send + Sync {
    /// The entries of locks: keys, rows, places in queues, sessions that hold or wait. One line each.
    fn places(&self) -> BoxFuture<'_, Vec<String>>;

    /// The resources of clients: connections, subscribers, sessions, leases. One line each, which begins with that
    /// word.
    fn clients(&self) -> BoxFuture<'_, Vec<String>>;
}

/// Makes room for a trial where the server counts connections by database; gives the URL.
pub(crate) async fn own_space(store: Store, url: &str, namespace: &str) -> String {
    match store {
        Store::MariaDb | Store::MySql => mysql::own_database(url, namespace).await,
        Store::MariaDbNamed | Store::MySqlNamed => {
            format!("{}?way=named", mysql::own_database(url, namespace).await)
        }
        Store::MariaDbRow | Store::MySqlRow => format!("{}?way=row", mysql::own_database(url, namespace).await),
        Store::Postgres => postgres::own_database(url, namespace).await,
        Store::PostgresRow => format!("{}?way=row", postgres::own_database(url, namespace).await),
        Store::PostgresNamed => format!("{}?way=named", postgres::own_database(url, namespace).await),
        Store::Etcd => format!("etcd://{}", url.split_once("://").unwrap().1),
        // The trials tell how late a dead holder's lock is free. The lock-delay has tests in the store's crate.
        Store::Consul => format!("{url}?lock_delay=0s"),
        Store::Paired => {
            let [gate, authority, made] = url.split(' ').collect::<Vec<_>>()[..] else { panic!("not a pair: {url}") };
            format!("{gate} {} {made}", mysql::own_database(authority, namespace).await)
        }
        _ => url.to_owned(),
    }
}

/// The probe of a store.
pub(crate) fn probe(store: Store, url: &str, namespace: &str, memory: &Arc<Memory>) -> Box<dyn Probe> {
    let (url, namespace) = (url.to_owned(), namespace.to_owned());
    match store {
        Store::Memory => Box::new(memory.clone()),
        Store::Sqlite => Box::new(sqlite::File(url)),
        Store::Redis => Box::new(redis::Redis { urls: vec![url], namespace }),
        Store::Redlock => Box::new(redis::Redis { urls: redis::nodes(&url), namespace }),
        Store::MariaDb | Store::MySql => Box::new(mysql::Rows { url, namespace }),
        Store::MariaDbNamed | Store::MySqlNamed => Box::new(mysql::Named { url, namespace }),
        Store::MariaDbRow | Store::MySqlRow => Box::new(mysql::RowLocks { url, namespace }),
        Store::Postgres => Box::new(postgres::Rows { url, namespace }),
        Store::PostgresRow => Box::new(postgres::RowLocks { url, namespace }),
        Store::PostgresNamed => Box::new(postgres::Named { url, namespace }),
        Store::Etcd => Box::new(etcd::Etcd { url, namespace }),
        Store::ZooKeeper => Box::new(zookeeper::ZooKeeper { url, namespace }),
        Store::Consul => Box::new(consul::Consul { url, namespace }),
        Store::Paired => {
            let [gate, authority] = [0, 1].map(|word| url.split(' ').nth(word).unwrap().to_owned());
            let gate = redis::Redis { urls: vec![gate], namespace: namespace.clone() };
            Box::new(Both([Box::new(gate), Box::new(mysql::Rows { url: authority, namespace })]))
        }
    }
}

/// Probes both stores of a pair, and joins their answers.
struct Both([Box<dyn Probe>; 2]);

impl Probe for Both {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { [self.0[0].places().await, self.0[1].places().await].concat() })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { [self.0[0].clients().await, self.0[1].clients().await].concat() })
    }
}

impl Probe for Arc<Memory> {
    fn places(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { (0..self.len()).map(|_| "a lock".to_owned()).collect() })
    }

    fn clients(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { Vec::new() })
    }
}
