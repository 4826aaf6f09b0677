//! Sends, bytes and connections of a lock and of a process on each store, counted by a proxy before the server.
//! No figure is a time, so a build without optimization and a busy machine give the same figures.

use std::time::Duration;

use dlock::{Guard, Key, Lock, Registry};
use dlock_testkit::Proxy;
use dlock_testkit::servers::{RedisCluster, shared};
use tokio::time::sleep;

use crate::Failed;
use crate::table::{Contender, Row};

/// The number of locks, one after the other, each with a key of its own.
const LOCKS: usize = 200;

/// The same keys in each round, as in a service that works on some thousands of things.
const KEYS: usize = 50;

/// The number of holds that are renewed. Many stores renew them together.
const HOLDS: usize = 10;
const TTL: Duration = Duration::from_secs(3);

/// How long a process without locks is watched, and one with holds.
const WATCHED: Duration = Duration::from_secs(12);

/// A pause before each count. Releases in the background are over by then.
const CALM: Duration = Duration::from_secs(1);

/// A name, and how its servers are reached.
type Store = (&'static str, fn() -> Result<Reached, Failed>);

/// The addresses, with proxies before the servers.
struct Reached {
    urls: Vec<String>,
    proxies: Vec<Proxy>,
    /// The URL of the store that two stores make together.
    both: Option<&'static str>,
    /// Servers of this store alone.
    _servers: Option<RedisCluster>,
}

const STORES: [Store; 17] = [
    ("Redis", || shared_ones(&[shared().redis()?], None)),
    ("Redis Cluster, 3 nodes", cluster),
    ("Redlock, 5 nodes", || shared_ones(&[shared().redlock()?], None)),
    ("MySQL, lease rows", || shared_ones(&[shared().mysql()?], None)),
    ("MariaDB, lease rows", || shared_ones(&[shared().mariadb()?], None)),
    ("PostgreSQL, lease rows", || shared_ones(&[shared().postgres()?], None)),
    ("MySQL, `GET_LOCK`", || shared_ones(&[shared().mysql()? + "?way=named"], None)),
    ("MariaDB, `GET_LOCK`", || shared_ones(&[shared().mariadb()? + "?way=named"], None)),
    ("PostgreSQL, advisory locks", || shared_ones(&[shared().postgres()? + "?way=named"], None)),
    ("MySQL, row locks", || shared_ones(&[shared().mysql()? + "?way=row"], None)),
    ("MariaDB, row locks", || shared_ones(&[shared().mariadb()? + "?way=row"], None)),
    ("PostgreSQL, row locks", || shared_ones(&[shared().postgres()? + "?way=row"], None)),
    ("etcd", || shared_ones(&[shared().etcd()?.replace("http://", "etcd://")], None)),
    ("ZooKeeper", || shared_ones(&[shared().zookeeper()?], None)),
    ("Consul", || shared_ones(&[shared().consul()?], None)),
    ("a pair of Redis and MariaDB", || {
        shared_ones(&[shared().redis()?, shared().mariadb()?], Some("paired://?gate=main&authority=second"))
    }),
    ("a migration from Redis to MariaDB", || {
        shared_ones(&[shared().redis()?, shared().mariadb()?], Some("migrating://?old=main&new=second"))
    }),
];

fn shared_ones(urls: &[String], both: Option<&'static str>) -> Result<Reached, Failed> {
    let mut reached = Reached { urls: Vec::new(), proxies: Vec::new(), both, _servers: None };
    for url in urls {
        let (proxies, through) = Proxy::in_front_of_each(url)?;
        reached.proxies.extend(proxies);
        reached.urls.push(through);
    }
    Ok(reached)
}

fn cluster() -> Result<Reached, Failed> {
    let mut set = RedisCluster::start(3, 0, true, &[])?;
    let (urls, proxies) = (vec![set.url()], std::mem::take(&mut set.proxies));
    Ok(Reached { urls, proxies, both: None, _servers: Some(set) })
}

pub(crate) fn row() -> Result<Row, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let reached = STORES.iter().map(|(_, reach)| reach()).collect::<Result<Vec<_>, _>>()?;
    let measured = runtime.block_on(async {
        // Beside each other, since each has proxies of its own.
        let running: Vec<_> =
            reached.into_iter().enumerate().map(|(number, reached)| tokio::spawn(measure(number, reached))).collect();
        let mut measured = Vec::new();
        for (running, (name, _)) in running.into_iter().zip(STORES) {
            let figures = running.await?.map_err(|error| format!("{name}: {error}"))?;
            measured.push(Contender { name: name.into(), figures });
        }
        Ok::<_, Failed>(measured)
    })?;
    Ok(Row {
        name: "cost".into(),
        about: format!(
            "The bytes and sends of one process, as a proxy before the server counts them. A lock: acquired and released, one \
             task, nobody else wants it. A renewal: one of {HOLDS} holds of the process, for a third of its ttl. Idle: no hold, \
             no waiter. A send is a piece of data that the proxy read at once: a request, or a part of it."
        ),
        contenders: measured,
        aims: Vec::new(),
    })
}

async fn measure(number: usize, reached: Reached) -> Result<Vec<(&'static str, f64)>, Failed> {
    let (registry, proxies) = (Registry::new(), &reached.proxies);
    // The ways of one server exclude nobody of each other, so they refuse to share a namespace.
    registry.configure(|defaults| defaults.namespace = format!("cost-{number}"))?;
    let lock = |key: Key| registry.lock(key);
    let names = ["main", "second"];
    for (url, name) in reached.urls.iter().zip(names) {
        registry.connect(name, url).await?;
    }
    if let Some(both) = reached.both {
        registry.connect("both", both).await?;
        registry.set_default("both")?;
    }
    let connections = || proxies.iter().map(Proxy::connections).sum::<usize>() as f64;
    // Opens connections, makes tables, prepares statements.
    cycles(lock, KEYS).await?;
    sleep(CALM).await;

    let before = Counted::by(proxies);
    cycles(lock, LOCKS).await?;
    sleep(CALM).await;
    let per_lock = Counted::by(proxies).since(&before).per(LOCKS as f64);
    let idle_connections = connections();

    let before = Counted::by(proxies);
    sleep(WATCHED).await;
    let idle = Counted::by(proxies).since(&before).per(WATCHED.as_secs_f64());

    let mut holds: Vec<Guard> = Vec::new();
    for number in 0..HOLDS {
        holds.push(lock(Key::text("held:").value(&number)).ttl(TTL).acquire().await?);
    }
    sleep(CALM).await;
    let before = Counted::by(proxies);
    sleep(WATCHED).await;
    let renewals = HOLDS as f64 * WATCHED.as_secs_f64() / (TTL / 3).as_secs_f64();
    let renewal = Counted::by(proxies).since(&before).per(renewals);
    let held_connections = connections();
    for hold in holds {
        hold.release().await?;
    }
    registry.shutdown(Duration::from_secs(5)).await;
    Ok(vec![
        ("sends per lock", per_lock.sends),
        ("bytes sent per lock", per_lock.to_server),
        ("bytes received per lock", per_lock.to_client),
        ("sends per renewal", renewal.sends),
        ("bytes per renewal", renewal.to_server + renewal.to_client),
        ("connections, idle", idle_connections),
        ("connections, 10 holds", held_connections),
        ("sends per s, idle", idle.sends),
        ("bytes per s, idle", idle.to_server + idle.to_client),
    ])
}

async fn cycles(lock: impl Fn(Key) -> Lock, count: usize) -> Result<(), Failed> {
    for number in 0..count {
        lock(Key::text("cost:").value(&(number % KEYS))).acquire().await?.release().await?;
    }
    Ok(())
}

/// The traffic through some proxies: sends, and bytes in both directions.
#[derive(Default)]
struct Counted {
    sends: f64,
    to_server: f64,
    to_client: f64,
}

impl Counted {
    fn by(proxies: &[Proxy]) -> Self {
        proxies.iter().fold(Self::default(), |sum, proxy| {
            let [to_server, to_client] = proxy.bytes();
            Self {
                sends: sum.sends + proxy.sent() as f64,
                to_server: sum.to_server + to_server as f64,
                to_client: sum.to_client + to_client as f64,
            }
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            sends: self.sends - before.sends,
            to_server: self.to_server - before.to_server,
            to_client: self.to_client - before.to_client,
        }
    }

    fn per(&self, count: f64) -> Self {
        Self { sends: self.sends / count, to_server: self.to_server / count, to_client: self.to_client / count }
    }
}
