//! `cargo xtask interop`: the tests that run other languages' clients beside ours. They need more than Rust, so
//! `cargo xtask test` leaves them out and shows them as ignored; there a scripted client takes the place of the real one.

use crate::parts::Parts;
use crate::sh::{Result, cargo, run};
use crate::test::{ETCD, with_servers};
use crate::{peers, servers};

pub(crate) fn run_interop() -> Result {
    let mut parts = Parts::default();
    // Which part failed is told at the end.
    let _ = steps(&mut parts);
    parts.finish()
}

fn steps(parts: &mut Parts) -> Result {
    parts.run("servers", servers::run)?;
    parts.run("redsync", peers::redsync)?;
    with_servers(parts, |parts, set| {
        let suites = ["--test", "redis_foreign", "--test", "redlock_backend"];
        let mut command = cargo(&["test", "--no-fail-fast", "--features", ETCD]);
        command.args(suites).args(["--", "--ignored"]).envs(set.env());
        parts.run("tests", || run(&mut command))
    })
}
