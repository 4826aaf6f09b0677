//! `cargo xtask faults`: random faults on a real store. The target `process` has the workers and the nemesis, and understands the words.

use crate::servers;
use crate::sh::{Result, cargo, run};
use crate::workspace::ETCD;

pub(crate) fn run_faults(words: &[&str]) -> Result {
    if let Some(["--store", store]) = words.chunks(2).find(|pair| pair[0] == "--store") {
        // A way has the servers of its store, and one crate has both MySQL and MariaDB.
        match store.split('-').next() {
            Some("mariadb") => servers::run_for("mysql")?,
            Some("redlock") => servers::run_for("redis")?,
            Some("paired") => ["redis", "mysql"].into_iter().try_for_each(servers::run_for)?,
            Some(of) => servers::run_for(of)?,
            None => {}
        }
    }
    // As the tests are built, so that it takes no further build.
    let mut program = cargo(&["test", "--quiet", "--workspace", "--features", ETCD, "--test", "process", "--"]);
    run(program.args(if words.is_empty() { &["--store"] } else { words }))
}
