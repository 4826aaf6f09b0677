//! The instructions that the feature `metrics` costs in each cycle, with an exporter for Prometheus. Valgrind counts them, so
//! a busy machine gives the same figures.

use std::path::Path;
use std::process::Command;

use dlock_testkit::servers::shared;

use crate::Failed;
use crate::table::{Contender, Row, median};

/// The word of the probe for each contender.
const CONTENDERS: [(&str, &str); 4] = [
    ("dlock, no metrics", "none"),
    ("the same counts and times by hand (floor)", "by-hand"),
    ("`dlock::metrics`, no exporter", "no-exporter"),
    ("`dlock::metrics`", "metrics"),
];

const CYCLES: usize = 12_800;

/// Cycles before, in which connections are opened. They are not counted.
const BEFORE: usize = 2560;

/// The middle one counts: the allocator's work differs from run to run.
const ROUNDS: usize = 5;

pub(crate) fn row() -> Result<Row, Failed> {
    let program = build()?;
    let url = shared().redis()?;
    let mut rounds = [const { Vec::new() }; CONTENDERS.len()];
    for _ in 0..ROUNDS {
        for (each, (_, counts)) in rounds.iter_mut().zip(CONTENDERS) {
            each.push(instructions(&program, &url, counts)? / CYCLES as f64);
        }
    }
    let each = rounds.map(median);
    let more = each.map(|instructions| 100.0 * (instructions - each[0]) / each[0]);
    let contenders = CONTENDERS.iter().enumerate().map(|(number, (name, _))| Contender {
        name: (*name).to_owned(),
        figures: vec![("instructions per cycle", each[number]), ("more than without, %", more[number])],
    });
    let mut row = Row {
        name: "metrics".into(),
        about: "Instructions of the process in one cycle of acquire and release on Redis, 64 tasks, as valgrind counts them. The \
                exporter is `metrics-exporter-prometheus` with 12 buckets. By hand: the same four histograms, three counters and \
                two gauges, by handles that the program keeps, and its own readings of the clock. The exporter keeps each value of a \
                histogram until it puts it into its bucket, so this program costs more than 3 % too."
            .into(),
        contenders: contenders.collect(),
        aims: Vec::new(),
    };
    let [floor, alone, all] = [more[1], more[2], more[3]];
    row.aim("without an exporter at most 3 % more", alone, alone <= 3.0);
    row.aim("at most 3 % more than the floor", all - floor, all - floor <= 3.0);
    Ok(row)
}

/// A program of its own, because valgrind cannot run the way in which `rustix` asks for the time.
fn build() -> Result<String, Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target/bench-metrics");
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join("src/main.rs"), include_str!("metrics/probe.rs"))?;
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let manifest = format!(
        "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         dlock-rs = {{ path = {:?}, default-features = false, features = [\"redis\", \"metrics\"] }}\n\
         metrics = \"0.24\"\nmetrics-exporter-prometheus = {{ version = \"0.18.3\", default-features = false }}\n\
         rustix = {{ version = \"1.1\", features = [\"use-libc\"] }}\n\
         tokio = {{ version = \"1.54\", features = [\"rt-multi-thread\", \"macros\"] }}\n",
        root.display().to_string()
    );
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    let build = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--offline"])
        .current_dir(&folder)
        .status()?;
    if !build.success() {
        return Err("the probe does not compile".into());
    }
    Ok(folder.join("target/release/probe").display().to_string())
}

fn instructions(program: &str, url: &str, counts: &str) -> Result<f64, Failed> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--zero-before=probe::counted_from_here"]);
    valgrind.args([program, url, counts, &CYCLES.to_string(), &BEFORE.to_string()]);
    let text = String::from_utf8(valgrind.output().map_err(|error| format!("valgrind: {error}"))?.stderr)?;
    let counted = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, counted) = counted.ok_or_else(|| format!("valgrind counted nothing: {text}"))?;
    Ok(counted.trim().parse()?)
}
