//! A test target, and how it is run.

use std::path::{Path, PathBuf};
use std::process::Command;

use dlock_testkit::servers::SharedSet;
use serde_json::Value;

use crate::sh::{cargo, root};
use crate::test::{ALL, ETCD, THOROUGH};
use crate::workspace::FACADE;

/// The targets that run longest, in this order, and how many tests of each run at once. On two cores the harness would run two
/// tests at a time. With many more, tests whose servers are late fail.
const LONG: [(&str, &str); 4] = [("process", "4"), ("ui", "2"), ("store", "3"), ("conformance", "5")];

/// How many tests of any other target run at once.
const OTHERS: &str = "2";

/// The targets that run other programs of the build, such as those of `examples/`.
const RUN_OTHERS: [&str; 5] =
    ["dlock-rs examples", "dlock-rs service", "dlock-cli program", "dlock-cli hosts", "dlock-cli console"];

/// One process of the run: a test target, or cargo for many short targets.
pub(crate) struct Target {
    /// As in `dlock-redis store`.
    pub(crate) name: String,
    /// Its place among the targets that are ready: the lowest starts first.
    pub(crate) place: usize,
    /// Whether all must be built before it runs, and not its own program alone.
    pub(crate) needs_all: bool,
    /// The program and the folder of its package. Cargo needs neither.
    program: Option<(PathBuf, PathBuf)>,
    cargo: &'static [&'static str],
    at_once: &'static str,
}

impl Target {
    /// The test target that a message of cargo tells of. Unit tests are none.
    pub(crate) fn of(message: &Value) -> Option<Self> {
        let is_test = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
        let program = message["executable"].as_str().filter(|_| is_test)?;
        let name = message["target"]["name"].as_str()?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = if folder == root() { FACADE.into() } else { folder.file_name()?.to_string_lossy() };
        let place = LONG.iter().position(|(long, _)| *long == name);
        let full_name = format!("{package} {name}");
        Some(Self {
            place: place.unwrap_or(LONG.len()),
            needs_all: RUN_OTHERS.contains(&&*full_name),
            name: full_name,
            program: Some((program.into(), folder.to_path_buf())),
            cargo: &[],
            at_once: place.map_or(OTHERS, |place| LONG[place].1),
        })
    }

    /// What cargo itself runs: unit tests, and the examples in the docs.
    pub(crate) fn of_cargo() -> [Self; 2] {
        let of = |name: &str, cargo| Self {
            name: name.to_owned(),
            place: LONG.len(),
            needs_all: true,
            program: None,
            cargo,
            at_once: OTHERS,
        };
        [of("the unit tests", &["--lib", "--bins"]), of("the examples of the docs", &["--doc"])]
    }

    pub(crate) fn command(&self, set: &SharedSet, filter: &[&str], all: bool) -> Command {
        let mut command = match &self.program {
            Some((program, folder)) => {
                let mut command = Command::new(program);
                command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
                command
            }
            None => {
                let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--features", ETCD]);
                command.args(self.cargo).arg("--");
                command
            }
        };
        command.args(filter).envs(set.env());
        if all {
            command.env(ALL, "1");
        } else {
            command.args(["--skip", THOROUGH]);
        }
        if std::env::var_os("RUST_TEST_THREADS").is_none() {
            command.env("RUST_TEST_THREADS", self.at_once);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{RUN_OTHERS, Target};
    use crate::sh::root;

    #[test]
    fn the_targets_that_run_other_programs_wait_for_the_build() {
        for (folder, package) in [("tests", "dlock-rs"), ("dlock-cli/tests", "dlock-cli")] {
            for file in std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()) {
                let Ok(text) = std::fs::read_to_string(&file) else { continue };
                let runs = ["CARGO_BIN_EXE_", "\"--example\""].iter().any(|word| text.contains(word));
                let name = format!("{package} {}", file.file_stem().unwrap().to_string_lossy());
                assert_eq!(runs, RUN_OTHERS.contains(&&*name), "{name}");
            }
        }
    }

    #[test]
    fn only_the_programs_of_test_targets_are_run_by_themselves() {
        let message = |kind: &str, executable: Option<&str>| {
            let target = json!({ "kind": [kind], "name": "store" });
            json!({ "target": target, "executable": executable, "manifest_path": "/a/redis/Cargo.toml" })
        };
        let found = Target::of(&message("test", Some("/a/target/store"))).unwrap();
        assert_eq!((&*found.name, found.at_once), ("redis store", "3"));
        assert_eq!(found.program.unwrap(), ("/a/target/store".into(), "/a/redis".into()));
        for other in [message("example", Some("/a/b")), message("lib", Some("/a/b")), message("test", None)] {
            assert!(Target::of(&other).is_none(), "{other}");
        }
        assert!(Target::of(&json!({ "reason": "build-finished", "success": true })).is_none());
    }
}
