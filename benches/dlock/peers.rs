//! Other libraries' locks, measured in the same run: a claim of speed is a ratio to the best of them.

use std::process::Command;

use dlock_testkit::child::Child;
use dlock_testkit::servers::Tree;

use crate::Failed;

/// The best on a contended key: who waits blocks in BLPOP, and a release pushes.
pub(crate) const PYTHON_REDIS_LOCK: &str = "python-redis-lock";

/// One of the processes that contend with it.
pub(crate) fn python_redis_lock(variables: &[(&str, &str)]) -> Result<Child, Failed> {
    let mut command = Command::new("python3");
    command.args(["-c", include_str!("peers/python_redis_lock.py")]);
    command.env("PYTHONPATH", Tree::named(PYTHON_REDIS_LOCK).root()).envs(variables.iter().copied());
    Ok(Child::of(command)?)
}

/// The Go lock that most literal names are shared with: who waits polls.
pub(crate) const REDSYNC: &str = "redsync";

/// The number of its tasks. The program describes its flags.
pub(crate) fn redsync<'a>(flags: impl Iterator<Item = &'a str>) -> Result<Child, Failed> {
    let mut command = Command::new(Tree::named(REDSYNC).root().join("redsync"));
    command.args(flags);
    Ok(Child::of(command)?)
}

/// Go's `concurrency.Mutex` of etcd's own client.
pub(crate) const GO_MUTEX: &str = "etcd-mutex";

/// The version of a peer, or the command that installs it: asked for before anything is measured.
pub(crate) fn version(peer: &str, row: &str) -> Result<String, Failed> {
    Tree::named(peer)
        .version()
        .ok_or_else(|| format!("{peer} is not installed here; run: cargo xtask bench {row}").into())
}
