//! The repository itself, and for each rule one text that keeps it and several that break it.

use std::sync::LazyLock;

use super::*;

#[test]
fn the_repository_is_tidy() {
    let broken = look(crate::sh::root()).unwrap();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// No finding. Its type is spelled out: other crates can compare numbers with types of their own.
const NONE: [usize; 0] = [];

/// The lines that a rule objects to.
fn lines(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
    static WORKSPACE: LazyLock<Workspace> = LazyLock::new(|| Workspace::of(crate::sh::root()).unwrap());
    let findings = rule(&Source { path, text, root: crate::sh::root(), workspace: &WORKSPACE });
    findings.into_iter().map(|(line, _)| line).collect()
}

#[test]
fn no_paths_of_a_machine() {
    let text = format!("fine\ncd {}\n{}x", concat!("/wo", "rk/main"), concat!("http:", "//deb.debian", ".org/"));
    assert_eq!(lines(machine_paths, "README.md", &text), [2, 3]);
    assert_eq!(lines(machine_paths, "README.md", "framework/ and root/"), NONE);
}

#[test]
fn no_unfinished_work() {
    let text = ["fn f() {", "to", "do!() }\n", "fine\n", "#[ig", "nore = \"slow\"]"].concat();
    assert_eq!(lines(unfinished, "tests/a.rs", &text), [1, 3]);
    assert_eq!(lines(unfinished, "docs/a.md", &text), NONE);
}

#[test]
fn features_are_asked_for_in_few_places() {
    let text = "//! #[cfg(feature = \"redis\")]\n#[cfg(feature = \"redis\")]\n#[cfg(feature = \"uuid\")]\n";
    assert_eq!(lines(features, "src/env.rs", text), [2]);
    assert_eq!(lines(features, "src/lib.rs", text), NONE);
    assert_eq!(lines(features, "src/openers.rs", text), NONE);
    assert_eq!(lines(features, "tests/all.rs", text), NONE);
    assert_eq!(lines(features, "Cargo.toml", "[features]\ndefault = [\"macros\", \"memory\", \"metrics\"]"), [2]);
    assert_eq!(lines(features, "Cargo.toml", DEFAULT_FEATURES), NONE);
    let tests = "fn f() {}\n\n#[cfg(all(test, feature = \"memory\"))]\nmod tests {}";
    assert_eq!(lines(features, "src/env.rs", tests), NONE);
}

#[test]
fn tasks_start_in_two_files() {
    let text =
        "use a;\ntokio::spawn(x);\n    std::thread::Builder::new()\n\n#[cfg(test)]\nmod tests { thread::spawn(y) }";
    assert_eq!(lines(tasks, "dlock-runtime/src/api/run.rs", text), [2, 3]);
    assert_eq!(lines(tasks, "dlock-store/src/thread/background.rs", text), NONE);
    assert_eq!(lines(tasks, "backends/redis/src/lib.rs", text), [2, 3]);
    assert_eq!(lines(tasks, "backends/redis/tests/all.rs", text), NONE);
    assert_eq!(lines(tasks, "testkit/src/proxy.rs", text), NONE);
}

#[test]
fn log_lines_are_written_through_one_function() {
    let text = "line(|| tracing::warn!(\"fine\"));\nline(move || {\n    tracing::warn!(\n        a,\n    );\n});\n\
                tracing::warn!(\"inline\");\nuse tracing::info;\n// tracing::info!\n\
                \n#[cfg(test)]\nmod tests { tracing::debug!(y) }";
    assert_eq!(lines(logs, "dlock-runtime/src/hold/renewal.rs", text), [7, 8]);
    assert_eq!(lines(logs, "backends/redis/src/lib.rs", text), [7, 8]);
    assert_eq!(lines(logs, "dlock-runtime/src/events/lines.rs", text), NONE);
    assert_eq!(lines(logs, "backends/redis/tests/all.rs", text), NONE);
}

#[test]
fn a_crate_uses_only_the_floors_below_it() {
    let text = "name = \"dlock-x\"\n[dependencies]\ndlock-contract.workspace = true\ndlock-redis = { workspace = true }\n\
                dlock-runtime.workspace = true\n[dev-dependencies]\ndlock-runtime.workspace = true\n";
    assert_eq!(lines(layers, "dlock-contract/Cargo.toml", text), [3, 4, 5]);
    assert_eq!(lines(layers, "backends/sqlite/Cargo.toml", text), [4, 5]);
    assert_eq!(lines(layers, "backends/redlock/Cargo.toml", text), [5]);
    assert_eq!(lines(layers, "dlock-console/Cargo.toml", text), [3, 4, 5]);
    let shared = "[dependencies]\ndlock-sql.workspace = true\n";
    assert_eq!(lines(layers, "backends/mysql/Cargo.toml", shared), NONE);
    assert_eq!(lines(layers, "dlock-runtime/Cargo.toml", shared), [2]);
    assert_eq!(lines(layers, "Cargo.toml", text), NONE);
    assert_eq!(lines(layers, "backends/sqlite/src/lib.rs", text), NONE);
}

#[test]
fn crates_that_know_no_store_have_none_of_its_clients() {
    let text = "[features]\nx = []\n[dependencies]\nredis = \"1\"\n# For tests.\nsqlx.workspace = true\n[dev-dependencies.hyper]\n\
                version = \"1\"\n[dev-dependencies]\nhyper-util={ workspace = true }\ntokio.workspace = true\n\n\
                [target.'cfg(unix)'.dependencies]\netcd-client.workspace = true\ndlock-redis.workspace = true\n[lints]\nworkspace = true\n";
    assert_eq!(lines(clients, "dlock-runtime/Cargo.toml", text), [4, 6, 7, 10, 14]);
    assert_eq!(lines(clients, "dlock-conformance/Cargo.toml", text), [4, 6, 7, 10, 14]);
    assert_eq!(lines(clients, "backends/redis/Cargo.toml", text), NONE);
    assert_eq!(lines(clients, "dlock-runtime/src/lib.rs", text), NONE);
}

#[test]
fn a_module_of_the_engine_uses_only_the_modules_before_it() {
    let text = "// crate::api\nuse crate::hold::store;\nuse crate::queue::turn;\nlet x = crate::acquire::y(crate::api::z);\n\
                use crate::Registry;\n#[cfg(test)]\nmod tests { use crate::api; }";
    assert_eq!(lines(modules, "dlock-runtime/src/queue/turn.rs", text), [2, 4, 4]);
    assert_eq!(lines(modules, "dlock-runtime/src/hold/store.rs", text), [4, 4]);
    assert_eq!(lines(modules, "dlock-runtime/src/queue.rs", text), [2, 4, 4]);
    assert_eq!(lines(modules, "dlock-runtime/src/api/run.rs", text), NONE);
    assert_eq!(lines(modules, "dlock-runtime/src/lib.rs", text), NONE);
    assert_eq!(lines(modules, "dlock-runtime/src/queue/turn/tests.rs", text), NONE);
    assert_eq!(lines(modules, "backends/redis/src/queue/turn.rs", text), NONE);
}

#[test]
fn a_file_of_rust_has_at_most_400_lines() {
    assert_eq!(lines(lengths, "src/a.rs", &"x\n".repeat(400)), NONE);
    assert_eq!(lines(lengths, "src/a.rs", &"x\n".repeat(401)), [401]);
    assert_eq!(lines(lengths, "docs/a.md", &"x\n".repeat(401)), NONE);
}

#[test]
fn exceptions_have_reasons() {
    let good = "#[allow(a, reason = \"b\")]\n\n// Because.\n#[allow(a)]\n\n#![allow(\n    a,\n    reason = \"b\"\n)]";
    assert_eq!(lines(allows, "a.rs", good), NONE);
    assert_eq!(lines(allows, "a.rs", "fn f() {}\n    #[allow(a)]\n#[allow(b)]\nlet reason = 1;"), [2, 3]);
}

#[test]
fn crates_for_authors_of_stores_have_no_new_words() {
    let text = "if let Some(a) = b {\n    _ if let Some(c) = d => {}\nif e && let Some(f) = g {\n// a && let b\n";
    assert_eq!(lines(old_rust, "dlock-store/src/a.rs", text), [2, 3]);
    assert_eq!(lines(old_rust, "dlock-runtime/src/a.rs", text), NONE);
}

#[test]
fn links_lead_somewhere() {
    let text = "[a](Cargo.toml) [b](nowhere.md)\n[c](https://x.y/z) [d](#here) [e](dlock::Key) [f](src/#a)\n```\n[g](no)\n```\n[h](no)";
    assert_eq!(lines(links, "SECURITY.md", text), [1, 6]);
    assert_eq!(lines(links, "testkit/a.md", "[a](../Cargo.toml)\n[b](deny.toml)"), [2]);
}
