//! The table in docs/capacity.md: what a lock, a renewal, a waiter and an idle process cost each store, counted by a proxy and by the
//! server.
//!
//! `DLOCK_WRITE=1 cargo xtask test --all -- capacity` writes it again. No figure is a time, so a build without optimization gives the
//! same ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::fs;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use dlock::{Guard, Key, Lock, Registry, Wait};
use dlock_testkit::servers::{Consul, Etcd, Instance, MariaDb, MySql, Postgres, Recipe, Redis, ZooKeeper};
use dlock_testkit::{Proxy, Result};
use tokio::time::sleep;

/// A server of its own, the URL of its store, and its count of the changes that it has made final.
type Start = fn() -> Result<Served>;

struct Served {
    server: Instance,
    url: String,
    changes: fn(&Instance) -> f64,
}

/// A heading of the table, and its figure.
type Cell = (&'static str, f64);

const STORES: &[(&str, Start)] = &[
    ("Redis", || of(Redis::default(), "", redis)),
    ("MySQL, lease rows", || of(MySql::default(), "", sql)),
    ("MariaDB, lease rows", || of(MariaDb::default(), "", sql)),
    ("PostgreSQL, lease rows", || of(Postgres::default(), "", postgres)),
    ("MySQL, `GET_LOCK`", || of(MySql::default(), "?way=named", sql)),
    ("MariaDB, `GET_LOCK`", || of(MariaDb::default(), "?way=named", sql)),
    ("PostgreSQL, advisory locks", || of(Postgres::default(), "?way=named", postgres)),
    ("PostgreSQL, row locks", || of(Postgres::default(), "?way=row", postgres)),
    ("etcd", || of(Etcd::default(), "", etcd)),
    ("ZooKeeper", || of(ZooKeeper::default(), "", zookeeper)),
    ("Consul", || of(Consul::default(), "", consul)),
];

/// Locks that are taken one after another, each with one of some keys.
const LOCKS: usize = 200;
const KEYS: usize = 50;
/// Holds that are renewed, and callers that wait for as many keys.
const MANY: usize = 10;
/// A third of it, the time between two renewals, fits often into the time that is watched.
const TTL: Duration = Duration::from_secs(6);
const WATCHED: Duration = Duration::from_secs(12);
/// A pause before each count. What is done in the background is over by then.
const CALM: Duration = Duration::from_secs(1);

/// Beside a slow machine, a figure is that of the page if it differs by less than this share, and this much.
const TOLERANCE: (f64, f64) = (0.25, 0.3);

const PAGE: &str = "docs/capacity.md";
const BEGIN: &str = "<!-- Written by tests/capacity.rs: begin -->\n";
const END: &str = "<!-- Written by tests/capacity.rs: end -->\n";

mod thorough {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_table_of_capacity_is_up_to_date() {
        super::compare_or_write().await;
    }
}

async fn compare_or_write() {
    // Beside each other, since each has a server and proxies of its own.
    let measured = STORES.iter().map(async |(name, start)| (*name, cells(*start).await));
    let rows = futures::future::join_all(measured).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (present, after) = rest.split_once(END).unwrap();
    if std::env::var_os("DLOCK_WRITE").is_some() {
        fs::write(&path, [before, BEGIN, &table(&rows), END, after].concat()).unwrap();
        return;
    }
    for (name, cells) in rows {
        let line =
            present.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap_or_else(|| panic!("{name}"));
        let known: Vec<f64> = line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        for ((heading, found), known) in cells.iter().zip(&known) {
            let is_near = (found - known).abs() <= TOLERANCE.0 * known + TOLERANCE.1;
            assert!(is_near, "{name}, {heading}: {found} are counted, and the page has {known}");
        }
        assert_eq!(cells.len(), known.len(), "{line}");
    }
}

fn table(rows: &[(&str, Vec<Cell>)]) -> String {
    let headings: Vec<_> = rows[0].1.iter().map(|(heading, _)| *heading).collect();
    let mut text = format!("| store | {} |\n|{}\n", headings.join(" | "), " --- |".repeat(headings.len() + 1));
    for (name, cells) in rows {
        let cells: Vec<_> = cells.iter().map(|(_, figure)| format!("{figure:.2}")).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    text
}

async fn cells(start: Start) -> Vec<Cell> {
    let Served { server, url, changes } = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let (proxies, through) = Proxy::in_front_of_each(&url).unwrap();
    let mut meter = Meter { proxies, server, changes, changes_per_second: 0.0 };
    let (own, other) = (Registry::new(), Registry::new());
    own.connect("main", &through).await.unwrap();
    let lock = |registry: &Registry, number: usize| -> Lock {
        registry.lock(Key::text("k:").value(&number)).ttl(TTL).wait(Wait::UpTo(Duration::from_secs(120)))
    };
    let cycles = async || {
        for number in 0..LOCKS {
            lock(&own, number % KEYS).acquire().await.unwrap().release().await.unwrap();
        }
    };
    let take = async |registry: &Registry| {
        let mut held: Vec<Guard> = Vec::new();
        for number in 0..MANY {
            held.push(lock(registry, number).acquire().await.unwrap());
        }
        held
    };
    let release = async |held: Vec<Guard>| {
        for guard in held {
            guard.release().await.unwrap();
        }
    };
    // Opens connections, makes rows, prepares statements.
    cycles().await;
    let idle = meter.during(sleep(WATCHED)).await;
    meter.changes_per_second = idle.changes / idle.seconds;
    let connections = meter.connections();
    let of_locks = meter.during(cycles()).await;

    let held = take(&own).await;
    let of_renewals = meter.during(sleep(WATCHED)).await;
    let connections_of_holder = meter.connections();
    release(held).await;

    // The holders go past the proxy, so it sees the waiters alone.
    other.connect("main", &url).await.unwrap();
    let held = take(&other).await;
    let waiting: Vec<_> = (0..MANY).map(|number| tokio::spawn(lock(&own, number).acquire())).collect();
    let of_waiters = meter.during(sleep(WATCHED)).await;
    let connections_of_waiters = meter.connections();
    release(held).await;
    for caller in waiting {
        caller.await.unwrap().unwrap().release().await.unwrap();
    }
    for registry in [own, other] {
        registry.shutdown(Duration::from_secs(5)).await;
    }
    let (locks, renewals) = (LOCKS as f64, MANY as f64 * of_renewals.seconds / (TTL / 3).as_secs_f64());
    vec![
        ("sends per lock", of_locks.sends / locks),
        ("bytes per lock", of_locks.bytes / locks),
        ("changes per lock", of_locks.changes / locks),
        ("sends per renewal", of_renewals.sends / renewals),
        ("bytes per renewal", of_renewals.bytes / renewals),
        ("changes per renewal", of_renewals.changes / renewals),
        ("sends of a waiter per s", of_waiters.sends / (MANY as f64 * of_waiters.seconds)),
        ("sends of an idle process per s", idle.sends / idle.seconds),
        ("connections, idle", connections),
        ("with 10 holds", connections_of_holder),
        ("with 10 waiters", connections_of_waiters),
    ]
}

/// Counts at the proxies and at the server.
struct Meter {
    proxies: Vec<Proxy>,
    server: Instance,
    changes: fn(&Instance) -> f64,
    /// The changes that the server makes by itself.
    changes_per_second: f64,
}

#[derive(Clone, Copy)]
struct Spent {
    sends: f64,
    bytes: f64,
    changes: f64,
    seconds: f64,
}

impl Meter {
    fn sum(&self, of: fn(&Proxy) -> usize) -> f64 {
        self.proxies.iter().map(of).sum::<usize>() as f64
    }

    fn connections(&self) -> f64 {
        self.sum(Proxy::connections)
    }

    fn now(&self) -> [f64; 3] {
        [self.sum(Proxy::sent), self.sum(|proxy| proxy.bytes().iter().sum()), (self.changes)(&self.server)]
    }

    async fn during(&self, work: impl Future<Output = ()>) -> Spent {
        sleep(CALM).await;
        let (before, began) = (self.now(), Instant::now());
        work.await;
        sleep(CALM).await;
        let (after, seconds) = (self.now(), began.elapsed().as_secs_f64());
        let by_itself = self.changes_per_second * seconds;
        let [sends, bytes, changes] = [0, 1, 2].map(|at| after[at] - before[at]);
        Spent { sends, bytes, changes: (changes - by_itself).max(0.0), seconds }
    }
}

fn of(recipe: impl Recipe, way: &str, changes: fn(&Instance) -> f64) -> Result<Served> {
    let server = Instance::start(recipe)?;
    let url = server.url().replace("http://", "etcd://") + way;
    Ok(Served { server, url, changes })
}

/// Writing commands.
fn redis(server: &Instance) -> f64 {
    let text = server.ask("INFO persistence").unwrap();
    number_after(&text, "rdb_changes_since_last_save:")
}

/// Commits.
fn sql(server: &Instance) -> f64 {
    let text = server.ask("SHOW GLOBAL STATUS LIKE 'Handler_commit'").unwrap();
    text.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// Numbers of transactions that write.
fn postgres(server: &Instance) -> f64 {
    let text = server.ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text").unwrap();
    text.trim().parse().unwrap_or_else(|_| panic!("{text}"))
}

fn etcd(server: &Instance) -> f64 {
    number_after(&server.ask("/metrics").unwrap(), "\netcd_server_proposals_committed_total ")
}

/// The low half of the number of the last change.
fn zookeeper(server: &Instance) -> f64 {
    let text = server.ask("srvr").unwrap();
    let (_, rest) = text.split_once("Zxid: 0x").unwrap_or_else(|| panic!("{text}"));
    let digits = rest.split_whitespace().next().unwrap_or_default();
    (u64::from_str_radix(digits, 16).unwrap() & 0xffff_ffff) as f64
}

fn consul(server: &Instance) -> f64 {
    number_after(&server.ask("GET /v1/agent/self").unwrap(), "\"commit_index\":\"")
}

fn number_after(text: &str, name: &str) -> f64 {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("{name} is not in {text}"));
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != 'e' && c != '+').unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}
