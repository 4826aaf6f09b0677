//! Other lock libraries: those that the benchmark compares with, and those that run beside ours where their tools are. No
//! test fails without them.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
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
    let sources = [format!("{SOURCE}/go.sum"), format!("{SOURCE}/main.go")];
    build(&tree, &sources, &go, |draft| {
        let mut build = Command::new("go");
        // Not another Go than the one that is there.
        build.args(["build", "-C", SOURCE, "-trimpath", "-o"]).arg(draft.join("redsync")).arg(".");
        build.env("GOTOOLCHAIN", "local");
        build
    })
}

/// Builds the program in `tests/interop/shedlock`, whose `pom.xml` pins the versions.
pub(crate) fn shedlock() -> Result {
    const SOURCE: &str = "tests/interop/shedlock";
    let tree = Tree::named("shedlock");
    let maven = read(Command::new("mvn").args(["-B", "-version"])).map_err(|error| {
        format!("{error}\nShedLock's node is built by Maven: install it (Debian: apt-get install maven default-jdk-headless)")
    })?;
    let sources = [format!("{SOURCE}/pom.xml"), format!("{SOURCE}/src/main/java/Node.java")];
    build(&tree, &sources, maven.lines().next().unwrap_or_default(), |draft| {
        let mut build = Command::new("mvn");
        build.args(["-q", "-B", "-f", &format!("{SOURCE}/pom.xml"), "compile", "dependency:copy-dependencies"]);
        build.args(["-DincludeScope=runtime", &format!("-DoutputDirectory={}", draft.join("lib").display())]);
        build.arg(format!("-Dnode.out={}", draft.display()));
        build
    })
}

/// Builds a program anew where its sources or its compiler have changed.
fn build(tree: &Tree, sources: &[String], compiler: &str, build: impl FnOnce(&Path) -> Command) -> Result {
    let mut hasher = DefaultHasher::new();
    for source in sources {
        fs::read_to_string(source)?.hash(&mut hasher);
    }
    let wanted = format!("{:x} ({})", hasher.finish(), compiler.trim());
    if tree.version().as_ref() != Some(&wanted) {
        eprintln!("  building {}", tree.root().display());
        fs::create_dir_all(cache_folder())?;
        let draft = tempfile::tempdir_in(cache_folder())?;
        read(&mut build(draft.path()))?;
        put(draft, tree, &wanted)?;
    }
    eprintln!("  {:<18} {wanted}", tree.root().file_name().unwrap_or_default().display());
    Ok(())
}

fn advise(error: impl std::fmt::Display) -> String {
    format!("{error}\nthe benchmark's peers need python3 with pip (Debian: apt-get install python3-pip)")
}
