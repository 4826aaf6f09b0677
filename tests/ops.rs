//! The alerts of `ops/` work, and ask for metrics that there are.

#![expect(clippy::unwrap_used, reason = "a test may fail by it")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use dlock_testkit::servers::{Tree, find_program};

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// All words that begin as a metric's name does.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("dlock_")).map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

#[test]
fn the_alerts_fire_when_they_should_and_not_else() {
    let unpacked = Tree::named("prometheus").root().join("usr/bin/promtool");
    let program = unpacked.is_file().then_some(unpacked).or_else(|| find_program("promtool"));
    let program = program.unwrap_or_else(|| panic!("promtool is missing; run: cargo xtask servers"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ops");
    for arguments in [["check", "rules", "prometheus-rules.yml"], ["test", "rules", "prometheus-rules.test.yml"]] {
        let output = Command::new(&program).args(arguments).current_dir(&folder).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
}

#[test]
fn alerts_and_pages_ask_for_metrics_that_there_are() {
    let (source, rules, page) = (read("src/metrics.rs"), read("ops/prometheus-rules.yml"), read("docs/operations.md"));
    let there_are = metrics_in(&source);
    assert!(there_are.len() >= 10, "{there_are:?}");
    for name in metrics_in(&rules).union(&metrics_in(&page)) {
        assert!(there_are.contains(name), "there is no {name}");
    }
}

#[test]
fn each_alert_is_tested_and_is_on_the_page() {
    let (rules, tests, page) =
        (read("ops/prometheus-rules.yml"), read("ops/prometheus-rules.test.yml"), read("docs/operations.md"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 7, "{alerts:?}");
    for alert in alerts {
        // Once where nothing is wrong, and at least once where it fires.
        assert!(tests.matches(&format!("alertname: {alert}")).count() >= 2, "{alert} has no test");
        assert!(page.contains(&format!("`{alert}`")), "{alert} is not in docs/operations.md");
    }
}
