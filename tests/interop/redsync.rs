//! Real redsync. `cargo xtask interop` builds it, by Go.

use std::process::Command;

use crate::foreign::{Foreign, built};

/// Starts eight tasks of redsync's that want one name, with redsync's defaults. Each hold counts up `counter` at the first
/// server, by a read and a write.
pub(crate) fn start(urls: &str, name: &str, counter: &str, seconds: u32) -> Foreign {
    let mut command = Command::new(built("redsync").root().join("redsync"));
    command.args(["-urls", urls, "-name", name, "-counter", counter, "-for", &format!("{seconds}s")]);
    Foreign::start(command)
}
