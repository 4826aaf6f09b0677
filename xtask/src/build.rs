//! The build of all tests in the background: each test target is ready to run as soon as its own program is built.
//!
//! Half of a cold build makes the programs of the tests, and the tests wait more than they work. So they share the processors.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::sh::{Result, cargo, not_run, text};
use crate::target::Target;
use crate::test::ETCD;

/// The crate below all stores. If it is built twice, so are they, and often tokio too: a cold build takes a tenth longer.
const BUILT_ONCE: &str = "dlock_contract";

/// The arguments for cargo: as the tests are built later. `cargo build` would build half of it once more, since the units of a
/// package that depends on itself differ.
const ALL_TESTS: [&str; 5] = ["test", "--workspace", "--features", ETCD, "--no-run"];

/// A build that goes on.
pub(crate) struct Build {
    cargo: Child,
    command: String,
}

impl Build {
    /// Starts to build. The tests that run meanwhile go first: the build gets the time that they leave.
    pub(crate) fn start() -> Result<Self> {
        let mut command = cargo(&ALL_TESTS);
        command.args(["--message-format", "json-render-diagnostics"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let cargo = command.spawn().map_err(|error| not_run(&command, &error))?;
        let mut renice = Command::new("renice");
        // Without it the build is not slower.
        let _ = renice.args(["-n", "10", "-p", &cargo.id().to_string()]).stdout(Stdio::null()).status();
        Ok(Self { cargo, command: text(&command) })
    }

    /// Adds each test target to the queue when its program is built, and ends the queue.
    pub(crate) fn fill(mut self, queue: &Targets) -> Result {
        let filled = self.add_to(queue);
        queue.end(filled.is_ok());
        filled
    }

    fn add_to(&mut self, queue: &Targets) -> Result {
        let mut builds = 0;
        for line in self.cargo.stdout.take().into_iter().flat_map(|stdout| BufReader::new(stdout).lines()) {
            let message: Value = serde_json::from_str(&line?)?;
            if message["target"]["name"] == BUILT_ONCE && message["profile"]["test"] == false {
                builds += 1;
            }
            if let Some(target) = Target::of(&message) {
                queue.add(target);
            }
        }
        let status = self.cargo.wait()?;
        if !status.success() {
            return Err(format!("{} ended with {status}", self.command).into());
        }
        once(builds).map_err(Into::into)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.cargo.kill();
        let _ = self.cargo.wait();
    }
}

fn once(builds: usize) -> std::result::Result<(), String> {
    match builds {
        0 | 1 => Ok(()),
        _ => Err(format!(
            "`{BUILT_ONCE}` and all stores are built {builds} times: for the host, where the tests of dlock-macros run, some crate has other \
             features than elsewhere; name them in dlock-macros/Cargo.toml, as is done for `mio` there"
        )),
    }
}

/// The targets that are ready to run. Many threads take them.
#[derive(Default)]
pub(crate) struct Targets {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Target>,
    /// Those that need more than their own program.
    at_the_end: VecDeque<Target>,
    has_ended: bool,
}

impl Targets {
    fn add(&self, target: Target) {
        let mut state = self.lock();
        if target.needs_all {
            state.at_the_end.push_back(target);
        } else {
            // The longest first, since a long target that starts last ends last.
            let place = state.ready.iter().position(|other| other.place > target.place).unwrap_or(state.ready.len());
            state.ready.insert(place, target);
        }
        self.changed.notify_one();
    }

    /// No target comes any more. After a failed build those that have not begun are left.
    fn end(&self, is_built: bool) {
        let mut state = self.lock();
        state.has_ended = true;
        if is_built {
            let State { ready, at_the_end, .. } = &mut *state;
            ready.append(at_the_end);
            ready.extend(Target::of_cargo());
        } else {
            state.ready.clear();
        }
        self.changed.notify_all();
    }

    /// The next target; waits until one is built. `None`: there are no more.
    pub(crate) fn next(&self) -> Option<Target> {
        let state = self.lock();
        let waits = |state: &mut State| state.ready.is_empty() && !state.has_ended;
        self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner).ready.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Target, Targets, once};

    fn built(queue: &Targets, package: &str, name: &str) {
        let target = json!({ "kind": ["test"], "name": name });
        let manifest = format!("/a/{package}/Cargo.toml");
        queue.add(Target::of(&json!({ "target": target, "executable": "/a/b", "manifest_path": manifest })).unwrap());
    }

    fn next(queue: &Targets) -> String {
        queue.next().unwrap().name
    }

    #[test]
    fn a_target_runs_as_soon_as_it_is_built_and_the_longest_first() {
        let queue = Targets::default();
        built(&queue, "redis", "kit");
        assert_eq!(next(&queue), "redis kit", "the build goes on");
        built(&queue, "dlock-rs", "examples");
        for name in ["kit", "conformance", "store", "process", "store"] {
            built(&queue, "redis", name);
        }
        let order: Vec<_> = (0..5).map(|_| next(&queue)).collect();
        assert_eq!(order, ["redis process", "redis store", "redis store", "redis conformance", "redis kit"]);
        queue.end(true);
        assert_eq!(next(&queue), "dlock-rs examples", "they run other programs of the build");
        assert_eq!((next(&queue), next(&queue)), ("the unit tests".into(), "the examples of the docs".into()));
        assert!(queue.next().is_none());
    }

    #[test]
    fn after_a_failed_build_nothing_more_is_run() {
        let queue = Targets::default();
        built(&queue, "redis", "kit");
        queue.end(false);
        assert!(queue.next().is_none());
    }

    #[test]
    fn a_second_build_of_the_stores_is_named() {
        assert!(once(1).is_ok());
        assert!(once(2).unwrap_err().contains("built 2 times"));
    }
}
