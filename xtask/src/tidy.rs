//! `cargo xtask tidy`: the rules of this repository that no other tool knows. They run as a test too.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::portable::OLD_RUST;
use crate::sh::{Result, read};
use crate::tidy_planted::Planted;
use crate::tidy_stores::forgotten;
use crate::workspace::{BACKENDS, Workspace};

/// Looks at every file that git tracks.
pub(crate) fn run() -> Result {
    let broken = look(crate::sh::root())?;
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("{} rules broken:\n{}", broken.len(), broken.join("\n")).into())
}

const RULES: [fn(&Source) -> Vec<Finding>; 12] =
    [machine_paths, unfinished, features, tasks, logs, layers, clients, modules, lengths, allows, old_rust, links];

/// The only files of the facade that know which stores there are.
const FEATURE_FILES: [&str; 2] = ["src/lib.rs", "src/openers.rs"];

/// The only files that start tasks and threads. Each task must end with its owner, and these files take care of that.
const TASK_FILES: [&str; 2] = ["dlock-store/src/thread/background.rs", "dlock-runtime/src/events/observe.rs"];

/// The code that may run on the thread `dlock`.
const LIBRARY_CODE: [&str; 5] = ["dlock-contract/src/", "dlock-store/src/", "dlock-runtime/src/", "backends/", "src/"];

/// The only files that use `tracing` as they like: one is never on the thread `dlock`, and the other keeps its layers away.
const LOG_FILES: [&str; 3] = [
    "dlock-runtime/src/events/lines.rs",
    "dlock-runtime/src/events/spans.rs",
    "dlock-store/src/thread/library_lines.rs",
];

/// The crates of ours that each layer may use. Cargo refuses circles, but not a store that uses the engine. Stores may also use
/// what several of them share.
const LAYERS: [(&str, &[&str]); 11] = [
    ("dlock-contract/", &[]),
    ("dlock-store/", &["dlock-contract"]),
    ("dlock-conformance/", &["dlock-contract", "dlock-store"]),
    ("dlock-console/", &["dlock-rs"]),
    ("dlock-cli/", &["dlock-rs", "dlock-console", "dlock-values"]),
    ("dlock-values/", &[]),
    ("dlock-macros/", &["dlock-values"]),
    ("dlock-runtime/", &["dlock-contract", "dlock-store", "dlock-values"]),
    ("dlock-sim/", &["dlock-contract", "dlock-runtime", "dlock-store"]),
    ("backends/redlock/", &["dlock-contract", "dlock-store", "dlock-redis"]),
    (BACKENDS, &["dlock-contract", "dlock-store"]),
];

/// The crates that know no store, and so no client library of one.
const WITHOUT_CLIENTS: [&str; 4] = ["dlock-contract/", "dlock-store/", "dlock-conformance/", "dlock-runtime/"];

/// All libraries of the crates that know no store. None of them is the client of one.
const LIBRARIES: [&str; 27] = [
    "axum-core",
    "fastrand",
    "futures",
    "getrandom",
    "http",
    "humantime",
    "inventory",
    "once_cell",
    "opentelemetry",
    "opentelemetry_sdk",
    "pin-project-lite",
    "rustix",
    "rustls",
    "rustls-native-certs",
    "serde",
    "serde_json",
    "sha2",
    "shuttle",
    "smallvec",
    "tempfile",
    "thiserror",
    "tokio",
    "tonic",
    "tracing",
    "tracing-opentelemetry",
    "tracing-subscriber",
    "uuid",
];

/// The folders of the engine. Each uses only those before it.
const MODULES: [&str; 8] = ["options", "site", "events", "queue", "hold", "guard", "acquire", "api"];

/// A longer file has more than one subject.
const LONGEST: usize = 400;

/// Generated code as it is expected to be: not ours to explain.
const EXPECTED_CODE: &str = "dlock-macros/tests/expansions/";

struct Source<'a> {
    path: &'a str,
    text: &'a str,
    root: &'a Path,
    workspace: &'a Workspace,
}

/// A line, counted from 1, and what is wrong with it.
type Finding = (usize, String);

fn look(root: &Path) -> Result<Vec<String>> {
    let files = read(Command::new("git").args(["ls-files", "-z"]).current_dir(root))?;
    let workspace = Workspace::of(root)?;
    let mut broken = forgotten(&workspace, &|path| fs::read_to_string(root.join(path)).unwrap_or_default());
    let mut planted = Planted::default();
    for path in files.split_terminator('\0') {
        // Deleted but not yet committed, or not text: nothing to look at.
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        planted.note(path, &text);
        let source = Source { path, text: &text, root, workspace: &workspace };
        let findings = RULES.iter().flat_map(|rule| rule(&source));
        broken.extend(findings.map(|(line, what)| format!("  {path}:{line}: {what}")));
    }
    broken.extend(planted.broken());
    Ok(broken)
}

/// The needles are put together here, or this file would break its own rules.
fn machine_paths(source: &Source) -> Vec<Finding> {
    let needles = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("deb.debian", ".org"),
        concat!("security.debian", ".org"),
        concat!("snapshot.debian", ".org"),
        concat!("archive.ubuntu", ".com"),
    ];
    source.find(&needles, |needle| format!("`{needle}` names one machine's place"))
}

fn unfinished(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let needles = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!("), concat!("#[ig", "nore")];
    source.find(&needles, |needle| format!("`{needle}` is not finished work"))
}

/// The default features: no metrics, no console, no client of a server.
const DEFAULT_FEATURES: &str = r#"default = ["macros", "memory"]"#;

fn features(source: &Source) -> Vec<Finding> {
    if source.path == "Cargo.toml" {
        let lines = (1..).zip(source.text.lines());
        let broken = lines.filter(|(_, line)| line.starts_with("default = ") && *line != DEFAULT_FEATURES);
        return broken.map(|(at, _)| (at, format!("the default features are not `{DEFAULT_FEATURES}`"))).collect();
    }
    if !source.is_rust_in(&["src/"]) || is_one_of(source.path, &FEATURE_FILES) {
        return Vec::new();
    }
    let asks = |line: &str| source.workspace.stores().any(|store| line.contains(&format!("feature = \"{store}\"")));
    let broken = source.code().filter(|(_, line)| line.contains("cfg") && asks(line));
    broken.map(|(line, _)| (line, "a store's feature is asked for outside the places for it".to_owned())).collect()
}

fn tasks(source: &Source) -> Vec<Finding> {
    if !source.is_rust_in(&LIBRARY_CODE) || source.path.contains("/tests/") || is_one_of(source.path, &TASK_FILES) {
        return Vec::new();
    }
    let starts = |line: &str| ["tokio::spawn", "thread::spawn", "thread::Builder"].iter().any(|s| line.contains(s));
    let broken = source.code().filter(|(_, line)| starts(line));
    broken.map(|(line, _)| (line, "a task or thread is started outside the two places for it".to_owned())).collect()
}

/// A layer of `tracing` is the user's: it may block or panic.
fn logs(source: &Source) -> Vec<Finding> {
    if !source.is_rust_in(&LIBRARY_CODE) || source.path.contains("/tests/") || is_one_of(source.path, &LOG_FILES) {
        return Vec::new();
    }
    let code: Vec<_> = source.code().collect();
    let is_guarded = |at: usize| {
        // The call may begin on one of the two lines before.
        code[at.saturating_sub(2)..=at].iter().any(|(_, line)| line.contains("line(") || line.contains("caught("))
    };
    let calls = (0..code.len()).filter(|at| code[*at].1.contains("tracing::") && !is_guarded(*at));
    calls.map(|at| (code[at].0, "`tracing` is called outside of `engine::line`".to_owned())).collect()
}

fn layers(source: &Source) -> Vec<Finding> {
    let layer = LAYERS.iter().find(|(folder, _)| source.path.strip_prefix(folder).is_some());
    let Some((_, below)) = layer.filter(|_| source.path.ends_with("Cargo.toml")) else { return Vec::new() };
    // Tests may use any layer.
    let lines = source.text.lines().enumerate().take_while(|(_, line)| *line != "[dev-dependencies]");
    let ours = lines.filter_map(|(at, line)| Some((at + 1, line.split_once(['.', ' ', '='])?.0)));
    let is_shared =
        |name: &str| source.path.starts_with(BACKENDS) && source.workspace.shared().any(|shared| shared.name == name);
    let broken = ours.filter(|(_, name)| name.starts_with("dlock-") && !below.contains(name) && !is_shared(name));
    broken.map(|(line, name)| (line, format!("`{name}` is not below this crate"))).collect()
}

fn clients(source: &Source) -> Vec<Finding> {
    let is_manifest = source.path.ends_with("/Cargo.toml") && is_one_of(source.path, &WITHOUT_CLIENTS);
    if !is_manifest {
        return Vec::new();
    }
    let (mut broken, mut is_list) = (Vec::new(), false);
    for (at, line) in source.text.lines().enumerate() {
        // `[dependencies]`, `[target.'cfg(unix)'.dependencies]` and `[dependencies.redis]`; `redis = …` and `redis.workspace = …`.
        let name = if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_list = section.ends_with("dependencies");
            section.rsplit_once("dependencies.").map(|(_, name)| name)
        } else {
            line.split(['.', ' ', '=']).next().filter(|name| is_list && !name.is_empty() && !name.starts_with('#'))
        };
        if let Some(name) = name.filter(|name| !name.starts_with("dlock-") && !LIBRARIES.contains(name)) {
            let what =
                "may be the client of a store, which this crate must not know; if it is not, add it to LIBRARIES";
            broken.push((at + 1, format!("`{name}` {what}")));
        }
    }
    broken
}

fn modules(source: &Source) -> Vec<Finding> {
    let Some(path) = source.path.strip_prefix("dlock-runtime/src/") else { return Vec::new() };
    let place = path.split(['/', '.']).next().and_then(|module| MODULES.iter().position(|known| *known == module));
    let Some(place) = place.filter(|_| !path.ends_with("/tests.rs") && !path.contains("/tests/")) else {
        return Vec::new();
    };
    let mut broken = Vec::new();
    for (at, line) in source.code() {
        let named = line.split("crate::").skip(1).filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
        let later = named.filter(|name| MODULES[place + 1..].contains(name));
        broken.extend(
            later.map(|name| (at, format!("`crate::{name}` is used by `{}`, which comes before it", MODULES[place]))),
        );
    }
    broken
}

fn lengths(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    if !source.is_rust() || lines <= LONGEST {
        return Vec::new();
    }
    vec![(LONGEST + 1, format!("the file has {lines} lines, more than {LONGEST}"))]
}

fn allows(source: &Source) -> Vec<Finding> {
    if !source.is_rust() || source.path.starts_with(EXPECTED_CODE) {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().map(str::trim_start).collect();
    let explained = |at: usize| {
        // The attribute may go over several lines.
        let end = lines[at..].iter().position(|line| line.contains(")]")).map_or(at, |more| at + more);
        lines[at..=end].iter().any(|line| line.contains("reason =")) || (at > 0 && lines[at - 1].starts_with("//"))
    };
    let starts = |line: &str| line.starts_with("#[allow(") || line.starts_with("#![allow(");
    let broken = (0..lines.len()).filter(|at| starts(lines[*at]) && !explained(*at));
    broken.map(|at| (at + 1, "an exception without a reason".to_owned())).collect()
}

/// The crates for authors of stores build with Rust 1.85, which has no `let` behind `&&` and in no guard of a `match`. Only
/// `cargo xtask portable` builds them with it.
fn old_rust(source: &Source) -> Vec<Finding> {
    if !source.is_rust() || !OLD_RUST.iter().any(|folder| source.path.starts_with(&format!("{folder}/src/"))) {
        return Vec::new();
    }
    let is_new = |line: &str| {
        let line = line.trim_start();
        !line.starts_with("//")
            && (line.contains("&& let ") || line.split_once(" if let ").is_some_and(|(_, rest)| rest.contains("=>")))
    };
    let broken = source.text.lines().enumerate().filter(|(_, line)| is_new(line));
    broken.map(|(at, _)| (at + 1, "Rust 1.85 does not know this `let`".to_owned())).collect()
}

fn links(source: &Source) -> Vec<Finding> {
    if !source.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = source.root.join(source.path);
    let folder = folder.parent().unwrap_or(source.root);
    let mut broken = Vec::new();
    let mut in_code = false;
    for (at, line) in source.text.lines().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for target in line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next()) {
            // Elsewhere, on this page, or an item for rustdoc.
            if target.is_empty() || target.contains(':') {
                continue;
            }
            if !folder.join(target).exists() {
                broken.push((at + 1, format!("the link to `{target}` leads nowhere")));
            }
        }
    }
    broken
}

impl Source<'_> {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_rust_in(&self, folders: &[&str]) -> bool {
        self.is_rust() && is_one_of(self.path, folders)
    }

    /// Lines of code: no comments, and not the tests at the end of the file, which may do as they like.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut before = "";
        let tests = self.text.lines().position(|line| {
            let found = line.starts_with("mod tests") && before.starts_with("#[");
            before = line;
            found
        });
        // The attribute before it belongs to it.
        let end = tests.map_or(usize::MAX, |at| at - 1);
        let lines = self.text.lines().enumerate().take(end).map(|(at, line)| (at + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn find(&self, needles: &[&str], say: impl Fn(&str) -> String) -> Vec<Finding> {
        let lines = self.text.lines().enumerate();
        let found = lines.filter_map(|(at, line)| Some((at + 1, *needles.iter().find(|n| line.contains(**n))?)));
        found.map(|(line, needle)| (line, say(needle))).collect()
    }
}

/// Entries that end with a slash are folders.
fn is_one_of(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| if place.ends_with('/') { path.starts_with(place) } else { path == *place })
}

#[cfg(test)]
#[path = "tidy_tests.rs"]
mod tests;
