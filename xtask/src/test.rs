//! `cargo xtask test`: everything that tests, against one private set of servers. With a store's name: the tests of that
//! store's crate, against the servers that they start.

use std::fs;

use dlock_testkit::servers::SharedSet;

use crate::parts::Parts;
use crate::sh::{Result, cargo, run};
use crate::{package, servers};

/// The one backend that a plain `cargo test` leaves out: its client needs `protoc`, which is there after `servers`.
pub(crate) const ETCD: &str = "dlock-rs/etcd-tls";

/// What the SQL stores share.
const NO_STORE: &str = "sql";

/// Runs the tests and reports how long each part took. The words are `[STORE] [-- FILTER]`.
pub(crate) fn test(words: &[&str]) -> Result {
    let (store, filter) = match words {
        [] => (None, &[][..]),
        ["--", filter @ ..] => (None, filter),
        [store] => (Some(*store), &[][..]),
        [store, "--", filter @ ..] => (Some(*store), filter),
        [_, word, ..] => return Err(format!("`{word}` is not understood: a filter comes after `--`").into()),
    };
    let stores = stores()?;
    if let Some(store) = store.filter(|store| !stores.iter().any(|known| known == store)) {
        return Err(format!("`{store}` is not a store; the stores are {}", stores.join(", ")).into());
    }
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = match store {
        None => add_to(&mut parts, filter),
        Some(store) => add_store_to(&mut parts, store, filter),
    };
    parts.finish()
}

/// The stores that have a crate of their own, as its folder is called.
pub(crate) fn stores() -> Result<Vec<String>> {
    let folders = fs::read_dir(crate::sh::root().join("backends"))?;
    let names = folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.retain(|name| name != NO_STORE);
    names.sort();
    Ok(names)
}

/// The parts for one store. Its tests start the servers that they need, each on first use.
fn add_store_to(parts: &mut Parts, store: &str, filter: &[&str]) -> Result {
    parts.run("servers", || servers::run_for(store))?;
    let package = format!("dlock-{store}");
    parts.run("build", || run(&mut cargo(&["test", "--package", &package, "--all-features", "--no-run"])))?;
    parts.run("tests", || {
        run(cargo(&["test", "--package", &package, "--all-features", "--no-fail-fast", "--"]).args(filter))
    })
}

/// The parts, up to the first that fails.
pub(crate) fn add_to(parts: &mut Parts, filter: &[&str]) -> Result {
    parts.run("servers", servers::run)?;
    // As the tests are built later. `cargo build` would build half of it once more, since the units of a package that depends on
    // itself differ. `cargo xtask ci` compiles the benchmarks.
    parts.run("build", || run(&mut cargo(&["test", "--workspace", "--features", ETCD, "--no-run"])))?;
    // A filter asks for some tests alone.
    if filter.is_empty() {
        parts.run("packages", package::packaged)?;
    }
    with_servers(parts, |parts, set| {
        // Plain `cargo test`: it runs doc tests and tests without the standard harness too, and ends with their counts.
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--features", ETCD, "--"]);
        command.args(filter).envs(set.env());
        // The tests wait more than they work. On two cores the harness would run two at a time.
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", "8");
        }
        parts.run("tests", || run(&mut command))
    })
}

/// Does `work` while a set of servers runs. They end with this process too, however it ends.
pub(crate) fn with_servers(parts: &mut Parts, work: impl FnOnce(&mut Parts, &SharedSet) -> Result) -> Result {
    let set = parts.run("start of the servers", || {
        let set = SharedSet::start()?;
        set.env().for_each(|(variable, url)| eprintln!("  {variable}={url}"));
        Ok(set)
    })?;
    let done = work(parts, &set);
    parts.run("end of the servers", || {
        drop(set);
        Ok(())
    })?;
    done
}
