//! `cargo xtask interop`: the tests that run real clients of other languages beside ours. They need more than Rust, so they
//! are a test target of their own, which `cargo test` and `cargo xtask test` leave out. There a scripted client takes the
//! place of the real one. Java and Maven come with the servers, and Go is installed by the first part that needs it.

use crate::parts::Parts;
use crate::sh::{Result, cargo, run};
use crate::test::with_servers;
use crate::workspace::ETCD;
use crate::{peers, servers};

pub(crate) fn run_interop() -> Result {
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = steps(&mut parts);
    parts.finish()
}

fn steps(parts: &mut Parts) -> Result {
    parts.run("servers", servers::run)?;
    parts.run("redsync", peers::redsync)?;
    parts.run("ShedLock", || peers::java("shedlock", "tests/interop/shedlock", "Node"))?;
    parts.run("etcd's concurrency package", peers::etcd_mutex)?;
    parts.run("jetcd", || peers::java("jetcd", "tests/interop/etcd/jetcd", "Jetcd"))?;
    parts.run("Curator", || peers::java("curator", "tests/interop/zookeeper/curator", "Curator"))?;
    parts.run("Consul's api for Go", || peers::go("consul-api", "tests/interop/consul/go"))?;
    with_servers(parts, |parts, set| {
        let mut command = cargo(&["test", "--no-fail-fast", "--features", ETCD, "--test", "interop"]);
        command.envs(set.env());
        parts.run("tests", || run(&mut command))
    })
}
