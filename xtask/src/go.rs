//! Go, which builds the lock libraries in Go that run beside ours: the machine's own, or one that is unpacked beside the servers.
//! Debian 12 has Go 1.19, and these libraries need a newer one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use dlock_testkit::servers::{GO, Tree, find_program};

use crate::servers;
use crate::sh::{Result, read};

/// Where the package has the program.
const PROGRAM: &str = "usr/lib/go-1.26/bin/go";

/// Major, minor and patch.
type Version = [u32; 3];

/// A Go that can build the program in this folder. It is installed if the machine has none, or only an older one.
pub(crate) fn program_for(source: &str) -> Result<PathBuf> {
    let needed = needed_by(&fs::read_to_string(format!("{source}/go.mod"))?);
    let needed = needed.ok_or_else(|| format!("{source}/go.mod names no version of Go"))?;
    if let Some(program) = find_program("go") {
        let version = read(Command::new(&program).arg("version").env("GOTOOLCHAIN", "local"));
        if version.is_ok_and(|text| version_of(&text).is_some_and(|version| version >= needed)) {
            return Ok(program);
        }
    }
    let [major, minor, patch] = needed;
    let advice = |error| format!("{error}\n{source} needs Go {major}.{minor}.{patch} or newer: https://go.dev/dl");
    servers::install(&[&GO]).map_err(advice)?;
    Ok(Tree::named(GO.package).root().join(PROGRAM))
}

/// The version that a `go.mod` names.
fn needed_by(module: &str) -> Option<Version> {
    module.lines().find_map(|line| numbers(line.strip_prefix("go ")?))
}

/// The version in the answer of `go version`, such as `go version go1.26.8 linux/amd64`.
fn version_of(text: &str) -> Option<Version> {
    numbers(text.split_whitespace().nth(2)?.strip_prefix("go")?)
}

fn numbers(text: &str) -> Option<Version> {
    let mut numbers = text.trim().split('.').map(str::parse);
    let mut next = || numbers.next().unwrap_or(Ok(0)).ok();
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_number_by_number() {
        assert_eq!(version_of("go version go1.26.8 linux/amd64"), Some([1, 26, 8]));
        assert!(version_of("go version go1.9 linux/amd64") < version_of("go version go1.26.10 linux/amd64"));
        assert_eq!(version_of("no such program"), None);
    }

    #[test]
    fn the_pinned_go_builds_each_program() {
        let root = crate::sh::root();
        let files = read(Command::new("git").args(["ls-files", "*go.mod"]).current_dir(root)).unwrap();
        assert!(files.lines().count() >= 3, "{files}");
        for file in files.lines() {
            let needed = needed_by(&fs::read_to_string(root.join(file)).unwrap()).unwrap();
            assert!(numbers(GO.version.trim_end_matches('.')).unwrap() >= needed, "{file} needs {needed:?}");
        }
    }
}
