//! `cargo xtask faults`: random faults on a real store. The target `process` has the workers and the nemesis, and understands the words.

mod every_store;

use std::process::Command;

use crate::servers;
use crate::sh::{Result, cargo, run};
use crate::workspace::ETCD;

pub(crate) fn run_faults(words: &[&str]) -> Result {
    if let ["--all", words @ ..] = words {
        return every_store::run_all(words);
    }
    if let Some(["--store", store]) = words.chunks(2).find(|pair| pair[0] == "--store") {
        install_for(store)?;
    }
    run(&mut program(if words.is_empty() { &["--store"] } else { words }))
}

/// As the tests are built, so that it takes no further build.
fn program(words: &[&str]) -> Command {
    let mut program = cargo(&["test", "--quiet", "--workspace", "--features", ETCD, "--test", "process", "--"]);
    program.args(words);
    program
}

/// The servers of a store. A way has those of its store, and one crate has both MySQL and MariaDB.
fn install_for(store: &str) -> Result {
    match store.split('-').next() {
        Some("mariadb") => servers::run_for("mysql"),
        Some("redlock") => servers::run_for("redis"),
        Some("paired") => ["redis", "mysql"].into_iter().try_for_each(servers::run_for),
        Some(of) => servers::run_for(of),
        None => Ok(()),
    }
}
