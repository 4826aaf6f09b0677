//! `cargo xtask test`: everything that tests, against one private set of servers.

use dlock_testkit::servers::SharedSet;

use crate::parts::Parts;
use crate::sh::{Result, cargo, run};
use crate::{package, servers};

/// The one backend that a plain `cargo test` leaves out: its client needs `protoc`, which is there after `servers`.
pub(crate) const ETCD: &str = "dlock-rs/etcd";

/// Runs it and tells how long each part took.
pub(crate) fn test(filter: &[&str]) -> Result {
    let mut parts = Parts::default();
    // Which part failed is told at the end.
    let _ = add_to(&mut parts, filter);
    parts.finish()
}

/// The parts, up to the first that fails.
pub(crate) fn add_to(parts: &mut Parts, filter: &[&str]) -> Result {
    parts.run("servers", servers::run)?;
    parts.run("build", || run(&mut cargo(&["build", "--workspace", "--all-targets", "--features", ETCD])))?;
    // A filter asks for some tests alone.
    if filter.is_empty() {
        parts.run("packages", package::packaged)?;
    }
    // The workspace's tests switch all features on, so the errors that name a missing one are tested here.
    parts.run("tests without features", || run(&mut cargo(&["test", "-p", "dlock-redis", "--lib"])))?;
    with_servers(parts, |parts, set| {
        // Plain `cargo test`: it runs doc tests and tests without the standard harness too, and ends with their counts.
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--features", ETCD, "--"]);
        command.args(filter).envs(set.env());
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
