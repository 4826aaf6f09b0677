//! `cargo xtask bench`: the benchmark table, whose rows and options are the benchmark's own business.

use std::path::Path;

use crate::parts::Parts;
use crate::sh::{Result, cargo, run};
use crate::test::with_servers;
use crate::workspace::ETCD;
use crate::{chart, peers, servers};

/// Builds it, starts the servers and hands the arguments on.
pub(crate) fn run_bench(arguments: &[&str]) -> Result {
    if !Path::new("benches/dlock/main.rs").exists() {
        return Err("there is no benches/dlock".into());
    }
    if arguments == ["--chart"] {
        return chart::chart();
    }
    let mut parts = Parts::default();
    // `finish` reports the part that failed.
    let _ = steps(&mut parts, arguments);
    parts.finish()?;
    if arguments.contains(&"--write") { chart::chart() } else { Ok(()) }
}

fn steps(parts: &mut Parts, arguments: &[&str]) -> Result {
    parts.run("servers", servers::run)?;
    let all = arguments.iter().all(|argument| argument.starts_with('-'));
    let has = |rows: &str| all || arguments.iter().any(|row| row.starts_with(rows));
    if has("contended") {
        parts.run("python-redis-lock", peers::python_redis_lock)?;
    }
    if has("strangers") {
        parts.run("redsync", peers::redsync)?;
    }
    if has("etcd") {
        parts.run("etcd's concurrency package", peers::etcd_mutex)?;
    }
    // Before the servers start, so that compiling does not slow their start down.
    parts.run("build", || run(&mut cargo(&["bench", "--bench", "dlock", "--features", ETCD, "--no-run"])))?;
    with_servers(parts, |parts, set| {
        let mut command = cargo(&["bench", "--bench", "dlock", "--features", ETCD, "--"]);
        command.args(arguments).envs(set.env());
        parts.run("bench", || run(&mut command))
    })
}
