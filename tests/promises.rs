//! The table of what each store can do, in docs/promises.md, is written from the stores' own profiles.
//!
//! `DLOCK_WRITE=1 cargo test --features etcd --test promises` writes it again. A store adds itself by one line in [`STORES`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dlock::Registry;
use dlock_contract::{Backend, Durability, Expiry, Fencing, TtlRange, WakeStyle};
use dlock_testkit::Result;
use dlock_testkit::servers::shared;

/// A way to keep locks: its crate in `backends/`, its name, its URL. A folder is for stores that are files.
type Store = (&'static str, &'static str, fn(&Path) -> Result<String>);

/// All of them, in the order of the table.
const STORES: &[Store] = &[
    ("memory", "memory", |_| Ok("memory://".into())),
    ("sqlite", "SQLite", |folder| Ok(format!("sqlite://{}", folder.join("locks.db").display()))),
    ("redis", "Redis", |_| shared().redis()),
    ("redlock", "Redlock", |_| shared().redlock()),
    ("mysql", "MySQL, lease rows", |_| shared().mysql()),
    ("mysql", "MariaDB, lease rows", |_| shared().mariadb()),
    ("postgres", "PostgreSQL, lease rows", |_| shared().postgres()),
    ("mysql", "MySQL, `GET_LOCK`", |_| shared().mysql().map(named)),
    ("mysql", "MariaDB, `GET_LOCK`", |_| shared().mariadb().map(named)),
    ("postgres", "PostgreSQL, advisory locks", |_| shared().postgres().map(named)),
    ("mysql", "MySQL, row locks", |_| shared().mysql().map(rows)),
    ("mysql", "MariaDB, row locks", |_| shared().mariadb().map(rows)),
    ("postgres", "PostgreSQL, row locks", |_| shared().postgres().map(rows)),
    ("etcd", "etcd", |_| Ok(shared().etcd()?.replace("http://", "etcd://"))),
    ("zookeeper", "ZooKeeper", |_| shared().zookeeper()),
    ("consul", "Consul", |_| shared().consul()),
];

const BEGIN: &str = "<!-- Written by tests/promises.rs: begin -->\n";
const END: &str = "<!-- Written by tests/promises.rs: end -->\n";
const PAGE: &str = "docs/promises.md";

#[tokio::test]
async fn the_table_of_what_each_store_can_do_is_up_to_date() {
    let table = table().await;
    let path = root().join(PAGE);
    let text = fs::read_to_string(&path).unwrap();
    let [before, present, after] = parts(&text);
    if std::env::var_os("DLOCK_WRITE").is_some() {
        fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
    } else {
        let how = "run `DLOCK_WRITE=1 cargo test --features etcd --test promises` and look at the difference";
        assert_eq!(present, table, "the table in {PAGE} is not up to date; {how}");
    }
}

/// The parts of the page before, between and behind the two lines.
fn parts(text: &str) -> [&str; 3] {
    let (before, rest) = text.split_once(BEGIN).unwrap_or_else(|| panic!("{PAGE} has no line {BEGIN}"));
    let (between, after) = rest.split_once(END).unwrap_or_else(|| panic!("{PAGE} has no line {END}"));
    [before, between, after]
}

/// Otherwise the table would be silent about a store.
#[test]
fn every_store_has_a_line_in_the_table() {
    let folders = fs::read_dir(root().join("backends")).unwrap();
    let crates = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    // `sql` is shared code of the SQL stores, and a pair supports the options that both of its stores support.
    let crates: BTreeSet<_> = crates.filter(|name| !["sql", "paired"].contains(&name.as_str())).collect();
    let listed: BTreeSet<_> = STORES.iter().map(|(folder, _, _)| (*folder).to_owned()).collect();
    assert_eq!(listed, crates, "the stores of tests/promises.rs and the crates in backends/ differ");
}

async fn table() -> String {
    let (folder, mut text) = (tempfile::tempdir().unwrap(), String::new());
    for (at, (_, name, url)) in STORES.iter().enumerate() {
        let registry = Registry::new();
        registry.connect("store", &url(folder.path()).unwrap()).await.unwrap();
        let cells = cells(&registry.backend(Some("store")).await.unwrap());
        if at == 0 {
            let heads: Vec<_> = cells.iter().map(|(head, _)| *head).collect();
            text = format!("\n| | {} |\n|{}\n", heads.join(" | "), " --- |".repeat(heads.len() + 1));
        }
        let values: Vec<_> = cells.into_iter().map(|(_, value)| value).collect();
        text += &format!("| {name} | {} |\n", values.join(" | "));
        registry.shutdown(Duration::ZERO).await;
    }
    text + "\n"
}

/// The cells of a store, from its profile and its powers, each with the head of its column.
fn cells(store: &Arc<dyn Backend>) -> Vec<(&'static str, String)> {
    let can = store.profile();
    let yes = |can: bool| if can { "yes" } else { "no" }.to_owned();
    let free = match can.expiry {
        Expiry::Session { .. } => "when its session ends".to_owned(),
        _ => {
            let ttls =
                if can.silent_ttls > 1 { format!("{} times the ttl", can.silent_ttls) } else { "the ttl".to_owned() };
            let late = Some(can.takeover_delay).filter(|late| !late.is_zero());
            late.map_or_else(|| format!("after {ttls}"), |late| format!("at most {} after {ttls}", time(late)))
        }
    };
    let kept = match can.durability {
        Durability::Consensus => "restart and failover",
        Durability::Node => "a restart",
        _ => "no restart",
    };
    let token = match can.fencing {
        Fencing::Monotonic => "rises, unless a backup is restored",
        Fencing::MonotonicUnlessFailover => "rises unless the store forgets",
        _ => "none",
    };
    let waiting = match can.wake {
        WakeStyle::Poll { from, to } => format!("polls every {} to {}", time(from), time(to)),
        WakeStyle::Grant => "handed over".to_owned(),
        _ => "notified".to_owned(),
    };
    vec![
        ("a dead holder's lock is free", free),
        ("locks survive", kept.to_owned()),
        ("token", token.to_owned()),
        ("waiters", waiting),
        ("`fair`", yes(can.fair)),
        ("`read`, `write`", yes(can.read_write)),
        ("`permits(n)`", yes(can.permits)),
        ("`min_hold`", yes(store.keeps().is_some())),
        ("`once_per`", yes(store.periods().is_some())),
        ("`cohort`", yes(store.tokens().is_some())),
        ("several keys in one request", yes(store.batch().is_some())),
        ("ttl", range(can.ttl)),
    ]
}

fn range(ttl: TtlRange) -> String {
    let step =
        if ttl.step > Duration::from_millis(1) { format!(", in steps of {}", time(ttl.step)) } else { String::new() };
    format!("{} to {}{step}", time(ttl.min), time(ttl.max))
}

/// In the largest unit that it fills, rounded down to a tenth.
fn time(time: Duration) -> String {
    let units =
        [("years", 365 * 86_400_000), ("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];
    let ms = time.as_millis();
    let (unit, length) = units.into_iter().find(|(_, length)| ms >= *length).unwrap_or(("ms", 1));
    let tenths = ms * 10 / length;
    let unit = if tenths == 10 {
        match unit {
            "years" => "year",
            "days" => "day",
            unit => unit,
        }
        .to_owned()
    } else {
        unit.to_owned()
    };
    if tenths.is_multiple_of(10) {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

fn named(url: String) -> String {
    format!("{url}{}way=named", if url.contains('?') { '&' } else { '?' })
}

fn rows(url: String) -> String {
    named(url).replace("way=named", "way=row")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
