//! Other lock libraries: those that the benchmark compares with, and those that run beside ours where their tools are. No
//! test fails without them.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

use dlock_testkit::servers::{Tree, cache_folder};

use crate::go;
use crate::sh::{Result, read};
use crate::tree::put;

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

/// Builds redsync's program.
pub(crate) fn redsync() -> Result {
    go("redsync", "benches/dlock/peers/redsync")
}

/// Builds the program that locks by etcd's own Go package.
pub(crate) fn etcd_mutex() -> Result {
    go("etcd-mutex", "tests/interop/etcd/go")
}

/// Builds a program in Go, whose versions its `go.sum` pins, into a tree of its own.
pub(crate) fn go(name: &str, source: &str) -> Result {
    let tree = Tree::named(name);
    let program = go::program_for(source)?;
    let version = read(go_command(&program).arg("version"))?;
    let wanted = format!("{:x} ({})", hash_of(source, &["go.sum", "main.go"])?, version.trim());
    if tree.version().as_ref() != Some(&wanted) {
        eprintln!("  building {name} into {}", tree.root().display());
        fs::create_dir_all(cache_folder())?;
        let draft = tempfile::tempdir_in(cache_folder())?;
        let mut build = go_command(&program);
        build.args(["build", "-C", source, "-trimpath", "-o"]).arg(draft.path().join(name)).arg(".");
        read(&mut build)?;
        put(draft, &tree, &wanted)?;
    }
    eprintln!("  {name:<18} {wanted}");
    Ok(())
}

fn go_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    // Otherwise it could download another Go, and run that one.
    command.env("GOTOOLCHAIN", "local");
    command
}

/// Builds a program in Java, whose versions its `pom.xml` pins, into a tree of its own: `classes` and `lib`.
pub(crate) fn java(name: &str, source: &str, class: &str) -> Result {
    let tree = Tree::named(name);
    let maven = read(Command::new("mvn").arg("-v")).map_err(|error| {
        format!("{error}\n{name} is built by Maven and Java 17: `cargo xtask servers` installs them")
    })?;
    let java = maven.lines().find(|line| line.starts_with("Java version")).unwrap_or_default();
    let class = format!("src/main/java/{class}.java");
    let wanted = format!("{:x} ({java})", hash_of(source, &["pom.xml", &class])?);
    if tree.version().as_ref() != Some(&wanted) {
        eprintln!("  building {name} into {}", tree.root().display());
        fs::create_dir_all(cache_folder())?;
        let draft = tempfile::tempdir_in(cache_folder())?;
        let mut build = Command::new("mvn");
        build.args(["-q", "-B", "-f", &format!("{source}/pom.xml"), "compile", "dependency:copy-dependencies"]);
        build.args(["-DincludeScope=runtime".to_owned(), format!("-Dfolder={}", draft.path().display())]);
        build.arg(format!("-DoutputDirectory={}", draft.path().join("lib").display()));
        read(&mut build)?;
        put(draft, &tree, &wanted)?;
    }
    eprintln!("  {name:<18} {wanted}");
    Ok(())
}

/// Of what the version of a program depends on.
fn hash_of(source: &str, files: &[&str]) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read_to_string(format!("{source}/{file}"))?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn advise(error: impl std::fmt::Display) -> String {
    format!("{error}\nthe benchmark's peers need python3 with pip (Debian: apt-get install python3-pip)")
}
