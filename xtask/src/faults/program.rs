//! The program that runs the faults, and the servers that it needs.

use std::process::Command;

use crate::servers;
use crate::sh::{Result, cargo};
use crate::workspace::ETCD;

/// As the tests are built, so that it takes no further build.
pub(super) fn program(words: &[&str]) -> Command {
    let mut program = cargo(&["test", "--quiet", "--workspace", "--features", ETCD, "--test", "process", "--"]);
    program.args(words);
    program
}

/// The servers of a store. A way has those of its store, and one crate has both MySQL and MariaDB.
pub(super) fn install_for(store: &str) -> Result {
    match store.split('-').next() {
        Some("mariadb") => servers::run_for("mysql"),
        Some("redlock") => servers::run_for("redis"),
        Some("paired") => ["redis", "mysql"].into_iter().try_for_each(servers::run_for),
        Some(of) => servers::run_for(of),
        None => Ok(()),
    }
}
