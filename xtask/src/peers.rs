//! Other lock libraries: those that the benchmark compares with, and those that run beside ours where their tools are. No
//! test fails without them.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use dlock_testkit::servers::{Tree, cache_folder};

use crate::servers::put;
use crate::sh::{Result, read};

const PACKAGE: &str = "python-redis-lock";
const VERSION: &str = "4.0.1";

/// Its client of Redis, pinned too, because it does most of the work.
const CLIENT: &str = "redis";
const CLIENT_VERSION: &str = "8.1.0";

/// Installs what is missing into a folder of its own beside the unpacked servers; the system's Python stays as it is.
pub(crate) fn python_redis_lock() -> Result {
    let tree = Tree::named(PACKAGE);
    // Which dependencies there are depends on the Python, and so does the speed.
    let python = read(Command::new("python3").arg("--version")).map_err(advise)?;
    let wanted = format!("{VERSION} ({CLIENT} {CLIENT_VERSION}, {})", python.trim());
    if tree.version().as_ref() != Some(&wanted) {
        eprintln!("  installing {PACKAGE} into {}", tree.root().display());
        fs::create_dir_all(cache_folder())?;
        let draft = tempfile::tempdir_in(cache_folder())?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--target"]).arg(draft.path());
        pip.args([format!("{PACKAGE}=={VERSION}"), format!("{CLIENT}=={CLIENT_VERSION}")]);
        read(&mut pip).map_err(advise)?;
        put(draft, &tree, &wanted)?;
    }
    eprintln!("  {PACKAGE:<18} {wanted}");
    Ok(())
}

/// Builds the program in `benches/dlock/peers/redsync`, whose versions its `go.sum` pins.
pub(crate) fn redsync() -> Result {
    const SOURCE: &str = "benches/dlock/peers/redsync";
    let tree = Tree::named("redsync");
    let go = read(Command::new("go").arg("version")).map_err(|error| {
        format!("{error}\nredsync is built by Go: install Go 1.21 or newer (Debian: apt-get install golang)")
    })?;
    let sources = fs::read_to_string(format!("{SOURCE}/go.sum"))? + &fs::read_to_string(format!("{SOURCE}/main.go"))?;
    let mut hasher = DefaultHasher::new();
    sources.hash(&mut hasher);
    let wanted = format!("{:x} ({})", hasher.finish(), go.trim());
    if tree.version().as_ref() != Some(&wanted) {
        eprintln!("  building redsync into {}", tree.root().display());
        fs::create_dir_all(cache_folder())?;
        let draft = tempfile::tempdir_in(cache_folder())?;
        let mut build = Command::new("go");
        // Not another Go than the one that is there.
        build
            .args(["build", "-C", SOURCE, "-trimpath", "-o"])
            .arg(draft.path().join("redsync"))
            .arg(".")
            .env("GOTOOLCHAIN", "local");
        read(&mut build)?;
        put(draft, &tree, &wanted)?;
    }
    eprintln!("  redsync            {wanted}");
    Ok(())
}

fn advise(error: impl std::fmt::Display) -> String {
    format!("{error}\nthe benchmark's peers need python3 with pip (Debian: apt-get install python3-pip)")
}
