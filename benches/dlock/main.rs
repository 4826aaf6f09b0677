//! The benchmark table: ratios from one interleaved run, never absolute claims.
//!
//! `cargo xtask bench [ROW..] [--quick] [--runs N] [--json] [--write]` starts the servers and calls this. A row is one kind of
//! work, in a process of its own; its contenders run in turns (A B C, then C B A), and each figure is the median of the rounds.

mod compile;
mod consul;
mod contended;
mod cost;
mod etcd;
mod floors;
mod leadership;
mod lease_connections;
mod lease_contended;
mod lease_held;
mod memory;
mod metrics;
mod named_contended;
mod paired;
mod peers;
mod renewals;
mod runs;
mod sql;
mod sql_crowd;
mod sql_floor;
mod sqlite;
mod sqlite_uncontended;
mod strangers;
mod table;
mod uncontended;
mod used;
mod waiters;
mod zookeeper;

use std::process::ExitCode;
use std::time::Duration;

use dlock_testkit::servers::Make;
use table::Row;

/// Every row, in the order of the table.
const ROWS: [(&str, Run); 94] = [
    ("uncontended-1", || uncontended::row(Make::Redis, 1)),
    ("uncontended-64", || uncontended::row(Make::Redis, 64)),
    ("uncontended-1024", || uncontended::row(Make::Redis, 1024)),
    ("uncontended-64-redis8", || uncontended::row(Make::Redis8, 64)),
    ("uncontended-1024-redis8", || uncontended::row(Make::Redis8, 1024)),
    ("uncontended-64-valkey", || uncontended::row(Make::Valkey, 64)),
    ("uncontended-1024-valkey", || uncontended::row(Make::Valkey, 1024)),
    ("contended-2", || contended::row(1, 2)),
    ("contended-16", || contended::row(1, 16)),
    ("contended-128", || contended::row(1, 128)),
    ("contended-4x4", || contended::row(4, 4)),
    ("contended-4x16", || contended::row(4, 16)),
    ("cohort-1x64", || contended::cohort_row(1, 64)),
    ("cohort-4x64", || contended::cohort_row(4, 64)),
    ("strangers-1ms", || strangers::row(Duration::from_millis(1))),
    ("strangers-30ms", || strangers::row(Duration::from_millis(30))),
    ("renewals-100k", renewals::row),
    ("waiters-10k", waiters::row),
    ("lease-1-mariadb", || sql::row(sql::Make::MariaDb, sql::Way::Lease, 1)),
    ("lease-1-mysql", || sql::row(sql::Make::MySql, sql::Way::Lease, 1)),
    ("lease-1-postgres", || sql::row(sql::Make::Postgres, sql::Way::Lease, 1)),
    ("lease-16-mariadb", || sql::row(sql::Make::MariaDb, sql::Way::Lease, 16)),
    ("lease-16-mysql", || sql::row(sql::Make::MySql, sql::Way::Lease, 16)),
    ("lease-16-postgres", || sql::row(sql::Make::Postgres, sql::Way::Lease, 16)),
    ("lease-held-1000-mariadb", || lease_held::row(sql::Make::MariaDb)),
    ("lease-held-1000-mysql", || lease_held::row(sql::Make::MySql)),
    ("lease-held-1000-postgres", || lease_held::row(sql::Make::Postgres)),
    ("named-1-mariadb", || sql::row(sql::Make::MariaDb, sql::Way::Named, 1)),
    ("named-1-mysql", || sql::row(sql::Make::MySql, sql::Way::Named, 1)),
    ("named-1-postgres", || sql::row(sql::Make::Postgres, sql::Way::Named, 1)),
    ("named-16-mariadb", || sql::row(sql::Make::MariaDb, sql::Way::Named, 16)),
    ("named-16-mysql", || sql::row(sql::Make::MySql, sql::Way::Named, 16)),
    ("named-16-postgres", || sql::row(sql::Make::Postgres, sql::Way::Named, 16)),
    ("named-contended-2-mariadb", || named_contended::row(sql::Make::MariaDb, 2)),
    ("named-contended-2-mysql", || named_contended::row(sql::Make::MySql, 2)),
    ("named-contended-2-postgres", || named_contended::row(sql::Make::Postgres, 2)),
    ("named-contended-16-mariadb", || named_contended::row(sql::Make::MariaDb, 16)),
    ("named-contended-16-mysql", || named_contended::row(sql::Make::MySql, 16)),
    ("named-contended-16-postgres", || named_contended::row(sql::Make::Postgres, 16)),
    ("row-1-mariadb", || sql::row(sql::Make::MariaDb, sql::Way::Row, 1)),
    ("row-1-mysql", || sql::row(sql::Make::MySql, sql::Way::Row, 1)),
    ("row-1-postgres", || sql::row(sql::Make::Postgres, sql::Way::Row, 1)),
    ("row-16-mariadb", || sql::row(sql::Make::MariaDb, sql::Way::Row, 16)),
    ("row-16-mysql", || sql::row(sql::Make::MySql, sql::Way::Row, 16)),
    ("row-16-postgres", || sql::row(sql::Make::Postgres, sql::Way::Row, 16)),
    ("lease-crowd-mariadb", || sql_crowd::row(sql::Make::MariaDb)),
    ("lease-crowd-mysql", || sql_crowd::row(sql::Make::MySql)),
    ("lease-contended-2-mariadb", || lease_contended::row(sql::Make::MariaDb, 1, 2)),
    ("lease-contended-2-mysql", || lease_contended::row(sql::Make::MySql, 1, 2)),
    ("lease-contended-2-postgres", || lease_contended::row(sql::Make::Postgres, 1, 2)),
    ("lease-contended-16-mariadb", || lease_contended::row(sql::Make::MariaDb, 1, 16)),
    ("lease-contended-16-mysql", || lease_contended::row(sql::Make::MySql, 1, 16)),
    ("lease-contended-16-postgres", || lease_contended::row(sql::Make::Postgres, 1, 16)),
    ("lease-contended-128-mariadb", || lease_contended::row(sql::Make::MariaDb, 1, 128)),
    ("lease-contended-128-mysql", || lease_contended::row(sql::Make::MySql, 1, 128)),
    ("lease-contended-128-postgres", || lease_contended::row(sql::Make::Postgres, 1, 128)),
    ("lease-contended-4x4-mariadb", || lease_contended::row(sql::Make::MariaDb, 4, 4)),
    ("lease-contended-4x4-mysql", || lease_contended::row(sql::Make::MySql, 4, 4)),
    ("lease-contended-4x4-postgres", || lease_contended::row(sql::Make::Postgres, 4, 4)),
    ("lease-contended-16x1-mariadb", || lease_contended::row(sql::Make::MariaDb, 16, 1)),
    ("lease-contended-16x1-mysql", || lease_contended::row(sql::Make::MySql, 16, 1)),
    ("lease-contended-16x1-postgres", || lease_contended::row(sql::Make::Postgres, 16, 1)),
    ("lease-connections-20x1-mariadb", || lease_connections::row(sql::Make::MariaDb)),
    ("lease-connections-20x1-mysql", || lease_connections::row(sql::Make::MySql)),
    ("lease-connections-20x1-postgres", || lease_connections::row(sql::Make::Postgres)),
    ("sqlite-1", sqlite_uncontended::row),
    ("sqlite-1x16", || sqlite::row(1, 16)),
    ("sqlite-4x4", || sqlite::row(4, 4)),
    ("sqlite-16x1", || sqlite::row(16, 1)),
    ("etcd-1", || etcd::uncontended_row(1)),
    ("etcd-64", || etcd::uncontended_row(64)),
    ("etcd-1024", || etcd::uncontended_row(1024)),
    ("etcd-contended-2", || etcd::contended_row(1, 2)),
    ("etcd-contended-16", || etcd::contended_row(1, 16)),
    ("etcd-contended-128", || etcd::contended_row(1, 128)),
    ("etcd-contended-4x4", || etcd::contended_row(4, 4)),
    ("zookeeper-1", || zookeeper::uncontended_row(1)),
    ("zookeeper-64", || zookeeper::uncontended_row(64)),
    ("zookeeper-contended-2", || zookeeper::contended_row(2)),
    ("zookeeper-contended-16", || zookeeper::contended_row(16)),
    ("zookeeper-contended-64", || zookeeper::contended_row(64)),
    ("consul-1", || consul::row(1)),
    ("consul-16", || consul::row(16)),
    ("paired-1", paired::row),
    ("leadership-sqlite", || leadership::row(leadership::Store::Sqlite)),
    ("leadership-redis", || leadership::row(leadership::Store::Redis)),
    ("leadership-postgres", || leadership::row(leadership::Store::Postgres)),
    ("leadership-etcd", || leadership::row(leadership::Store::Etcd)),
    ("leadership-zookeeper", || leadership::row(leadership::Store::ZooKeeper)),
    ("leadership-consul", || leadership::row(leadership::Store::Consul)),
    ("cost", cost::row),
    ("memory", memory::row),
    ("metrics", metrics::row),
    ("compile", compile::row),
];

/// Each store beside its floor, in about five minutes: a slip shows before a release.
const QUICK: [&str; 9] = [
    "uncontended-64",
    "contended-4x4",
    "lease-16-postgres",
    "named-16-mariadb",
    "row-16-postgres",
    "sqlite-4x4",
    "etcd-64",
    "zookeeper-64",
    "consul-16",
];

type Run = fn() -> Result<Row, Failed>;
type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // Some rows start this program again, as their other processes.
    if let Some(role) = dlock_testkit::child::role() {
        return match role.as_str() {
            "neighbours" => strangers::child(),
            "leader" => leadership::child(),
            role => contended::child(role),
        };
    }
    if let Some(name) = std::env::var_os(runs::ONE) {
        return measure(&name.to_string_lossy());
    }
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let Some(wanted) = Wanted::of(&arguments) else {
        eprintln!("usage: cargo xtask bench [ROW..] [--quick] [--runs N] [--list] [--json] [--write]\n\n{}", groups());
        return ExitCode::from(2);
    };
    if wanted.list {
        println!("{}", groups());
        return ExitCode::SUCCESS;
    }
    let mut rows = Vec::new();
    let mut failed = false;
    for name in wanted.rows {
        eprintln!("running {name} …");
        match runs::middle_of(name, wanted.runs) {
            Ok(row) => rows.push(row),
            Err(error) => {
                eprintln!("{name}: {error}");
                failed = true;
            }
        }
    }
    let text = table::markdown(&rows);
    println!("{}", if wanted.json { table::json(&rows) } else { text.clone() });
    if failed {
        eprintln!("a row has no figures that could be believed: nothing is written");
        return ExitCode::FAILURE;
    }
    if wanted.write {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.md");
        let former = std::fs::read_to_string(page).unwrap_or_default();
        let order: Vec<_> = ROWS.iter().map(|(name, _)| *name).collect();
        if let Err(error) = std::fs::write(page, table::page(&former, &text, &order)) {
            eprintln!("docs/performance.md: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// One run of one row, for the process that asked for it.
fn measure(name: &str) -> ExitCode {
    let found = ROWS.iter().find(|(row, _)| *row == name);
    match found.ok_or_else(|| Failed::from("there is no such row")).and_then(|(_, run)| run()) {
        Ok(row) => {
            println!("{}", runs::written(&row));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The request in the arguments.
struct Wanted {
    rows: Vec<&'static str>,
    runs: usize,
    list: bool,
    json: bool,
    write: bool,
}

impl Wanted {
    /// `None` if they are not understood.
    fn of(arguments: &[String]) -> Option<Self> {
        let mut wanted = Self { rows: Vec::new(), runs: 0, list: false, json: false, write: false };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => wanted.list = true,
                "--json" => wanted.json = true,
                "--write" => wanted.write = true,
                "--quick" => wanted.rows.extend(QUICK),
                "--runs" => wanted.runs = arguments.next()?.parse().ok().filter(|runs| *runs > 0)?,
                name => wanted.rows.push(ROWS.iter().find(|(row, _)| *row == name)?.0),
            }
        }
        if wanted.rows.is_empty() {
            wanted.rows = ROWS.iter().map(|(name, _)| *name).collect();
        }
        // One run may be an accident, and a page is read for long.
        if wanted.runs == 0 {
            wanted.runs = if wanted.write { 3 } else { 1 };
        }
        Some(wanted)
    }
}

/// The rows by what they are about, a line each.
fn groups() -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, _) in ROWS {
        let group = name.split('-').next().unwrap_or(name);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, rows)) => rows.push(name),
            None => groups.push((group, vec![name])),
        }
    }
    let lines = groups.iter().map(|(group, rows)| format!("{group}: {}", rows.join(" ")));
    lines.chain([format!("--quick: {}", QUICK.join(" "))]).collect::<Vec<_>>().join("\n")
}
