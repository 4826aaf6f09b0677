//! The compile time of 200 annotated functions, against the same functions with `#[tracing::instrument]`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Failed;
use crate::table::{Contender, Row, median};

const FUNCTIONS: usize = 200;
const CONTENDERS: [&str; 3] = ["no attribute", "tracing::instrument", "distributed_lock"];

pub(crate) fn row() -> Result<Row, Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target/bench-compile");
    for contender in CONTENDERS {
        let own = folder.join(contender.replace([' ', ':'], "_")).join("src");
        std::fs::create_dir_all(&own)?;
        std::fs::write(own.join("lib.rs"), source(contender))?;
        let manifest = format!(
            "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
             dlock-rs = {{ path = {:?} }}\ntracing = {{ version = \"0.1\", features = [\"attributes\"] }}\n",
            root.display().to_string()
        );
        std::fs::write(own.with_file_name("Cargo.toml"), manifest)?;
        std::fs::copy(root.join("Cargo.lock"), own.with_file_name("Cargo.lock"))?;
    }
    let mut times = vec![Vec::new(); CONTENDERS.len()];
    for round in 0..=4 {
        for (index, contender) in CONTENDERS.iter().enumerate() {
            let own = folder.join(contender.replace([' ', ':'], "_"));
            // Only the probe itself is compiled anew; the first round builds what it depends on.
            std::fs::write(own.join("src/lib.rs"), source(contender))?;
            let begun = Instant::now();
            let done = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--offline"])
                .current_dir(&own)
                .env("CARGO_TARGET_DIR", folder.join("target"))
                .env("CARGO_INCREMENTAL", "0")
                .status()?;
            if !done.success() {
                return Err("the probe does not compile".into());
            }
            if round > 0 {
                times[index].push(begun.elapsed().as_secs_f64());
            }
        }
    }
    let middle: Vec<f64> = times.into_iter().map(median).collect();
    let contenders = CONTENDERS.iter().zip(&middle).map(|(name, seconds)| Contender {
        name: (*name).to_owned(),
        figures: vec![
            ("build s", *seconds),
            ("cost above none × instrument's", (seconds - middle[0]) / (middle[1] - middle[0])),
        ],
    });
    let mut row = Row {
        name: "compile".into(),
        about: format!("A debug build of one crate with {FUNCTIONS} functions, its dependencies being built already."),
        contenders: contenders.collect(),
        aims: Vec::new(),
    };
    let cost = row.figure("distributed_lock", "cost above none × instrument's");
    row.aim("at most 2 × what instrument costs", cost, cost <= 2.0);
    Ok(row)
}

fn source(contender: &str) -> String {
    let attribute = match contender {
        "tracing::instrument" => "#[tracing::instrument]",
        "distributed_lock" => "#[dlock::distributed_lock(key = \"stock:<id>\", ttl = \"30s\", backend = \"main\")]",
        _ => "",
    };
    let mut text = String::new();
    for index in 0..FUNCTIONS {
        let _ = writeln!(
            text,
            "{attribute}\npub async fn f{index}(id: u64, n: u32) -> Result<u64, dlock::Error> {{\n    \
             let mut sum = id;\n    for i in 0..n {{\n        sum += u64::from(i);\n        other(sum).await?;\n    }}\n    Ok(sum)\n}}"
        );
    }
    text + "async fn other(_n: u64) -> Result<(), dlock::Error> {\n    Ok(())\n}\n"
}
