//! The clients of other tools, each in a process of its own.

use std::process::Command;

use dlock::{Key, LockKey};
use dlock_testkit::Peer;

use crate::kit::shared;

/// The real kazoo. `extra` is a pattern of other tools' nodes that it waits for.
pub(crate) fn kazoo(path: &str, extra: &str) -> Peer {
    // Debian's, for which `cargo xtask servers` installs kazoo.
    let mut command = Command::new("/usr/bin/python3");
    Peer::start(command.args(["-c", include_str!("kazoo.py"), &hosts(), path, extra]))
}

/// The real Curator.
pub(crate) fn curator(path: &str) -> Peer {
    const JARS: [&str; 7] =
        ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-nop"];
    let classes = JARS.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":");
    let mut command = Command::new("java");
    command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", &classes]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/Curator.java")).args([&hosts(), path]);
    Peer::start(&mut command)
}

fn hosts() -> String {
    shared().replace("zk://", "")
}

/// A path that no other test uses, and the key that has it literally.
pub(crate) fn place() -> (String, LockKey) {
    let name = format!("n{}", fastrand::u64(..));
    (format!("/others/{name}"), LockKey::new("t", Key::text("/others/").value(&name)).unwrap())
}
