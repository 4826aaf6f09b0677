//! `cargo xtask lines`: the lines with code of each crate, without comments and blank lines, and those of its tests.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::sh::{Result, read, root};
use crate::workspace::Workspace;

/// The lines of one crate.
#[derive(Default)]
struct Lines {
    source: usize,
    tests: usize,
}

/// Counts the files that git knows.
pub(crate) fn lines() -> Result {
    let workspace = Workspace::of(root())?;
    let mut crates: BTreeMap<&str, Lines> = BTreeMap::new();
    for file in read(Command::new("git").args(["ls-files", "*.rs"]))?.lines() {
        let owns =
            |folder: &str| folder.is_empty() || file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let owners = workspace.packages.iter().filter(|package| owns(&package.folder));
        let Some(owner) = owners.max_by_key(|package| package.folder.len()) else { continue };
        let text = fs::read_to_string(root().join(file))?;
        let (source, tests) = code_and_tests(&text);
        let of_crate = crates.entry(&owner.name).or_default();
        if is_source(file) {
            of_crate.source += source;
            of_crate.tests += tests;
        } else {
            of_crate.tests += source + tests;
        }
    }
    let is_published =
        |name: &str| workspace.packages.iter().any(|package| package.name == name && package.is_published);
    let (mut shipped, mut not_shipped, mut all_tests) = (0, 0, 0);
    eprintln!("{:<20} {:>7} {:>7}", "", "source", "tests");
    for (name, lines) in crates {
        eprintln!("{name:<20} {:>7} {:>7}", lines.source, lines.tests);
        *(if is_published(name) { &mut shipped } else { &mut not_shipped }) += lines.source;
        all_tests += lines.tests;
    }
    eprintln!(
        "\n{shipped} lines of published crates, {not_shipped} of tools, {all_tests} of tests, benches and examples"
    );
    Ok(())
}

/// Whether the file is compiled into the crate, and not only for its tests.
fn is_source(file: &str) -> bool {
    let is_test_folder = |folder| file.starts_with(&format!("{folder}/")) || file.contains(&format!("/{folder}/"));
    !["tests", "benches", "examples"].into_iter().any(is_test_folder) && !file.ends_with("/tests.rs")
}

/// The lines with code before the unit tests, which stand at the end of a file, and those in them.
fn code_and_tests(text: &str) -> (usize, usize) {
    let (code, tests) = text.split_once("\n#[cfg(test)]\nmod tests {").unwrap_or((text, ""));
    (count(code), count(tests))
}

fn count(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::{code_and_tests, is_source};

    #[test]
    fn comments_and_blank_lines_do_not_count_and_unit_tests_are_tests() {
        let text =
            "//! A page.\n\nfn one() {}\n    // Why.\nfn two() {}\n\n#[cfg(test)]\nmod tests {\n    fn three() {}\n}\n";
        assert_eq!(code_and_tests(text), (2, 2));
    }

    #[test]
    fn files_of_tests_are_no_source() {
        assert!(is_source("backends/sql/src/lib.rs"));
        for file in ["tests/ops.rs", "backends/sql/tests/cases/kit.rs", "dlock-cli/src/cli/tests.rs", "benches/a.rs"] {
            assert!(!is_source(file), "{file}");
        }
    }
}
