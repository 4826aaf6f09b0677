//! redis-py's lock, in a process of its own.

use std::process::Command;

use dlock_testkit::Peer;

/// Debian's, for which `cargo xtask servers` installs redis-py.
const PYTHON: &str = "/usr/bin/python3";

/// A program that uses redis-py.
pub(crate) fn redis_py(url: &str) -> Peer {
    Peer::start(Command::new(PYTHON).args(["-c", include_str!("client.py"), url]))
}
