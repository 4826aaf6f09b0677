//! Random faults on a real store: `cargo xtask faults`. A seed chooses them, workers and the nemesis write down what they see and do,
//! and the checker of the simulation judges it.

mod judge;
mod judged;
mod nemesis;
mod sessions;
mod weight;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dlock_sim::seconds;

use crate::arena::{Arena, Server};
use crate::record;
use crate::store::{self, Store};

pub(crate) use judge::{Verdict, judge};
pub(crate) use judged::trials as judge_trials;
use weight::Growth;
pub(crate) use weight::{Weight, weigh};
pub(crate) use workers::Workers;

const USAGE: &str = "cargo xtask faults --store STORE [--minutes N] [--seed S], or cargo xtask faults --check FOLDER, or \
                     cargo xtask faults --stores";

/// The arguments, if the program is asked for in the place of the trials.
pub(crate) fn words() -> Option<Vec<String>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = matches!(words.first().map(String::as_str), Some("--store" | "--check" | "--stores"));
    is_asked.then_some(words)
}

/// Runs the program.
pub(crate) fn run(words: &[String]) -> ExitCode {
    match words {
        [check, folder] if check == "--check" => verdict(Path::new(folder)),
        [word] if word == "--stores" => {
            stores().for_each(|store| println!("{}", store.name()));
            ExitCode::SUCCESS
        }
        _ => match Plan::of(words) {
            Ok(plan) => plan.run(),
            Err(error) => {
                eprintln!("{error}\n{USAGE}");
                ExitCode::from(2)
            }
        },
    }
}

/// The stores that processes can meet in.
fn stores() -> impl Iterator<Item = Store> {
    store::ALL.into_iter().filter(|store| store.is_shared())
}

struct Plan {
    store: Store,
    length: Duration,
    seed: u64,
}

impl Plan {
    fn of(words: &[String]) -> Result<Self, String> {
        let (mut store, mut minutes, mut seed) = (None, 1.0, fastrand::u64(..1_000_000));
        for pair in words.chunks(2) {
            let [word, value] = pair else { return Err(format!("`{}` has no value", pair[0])) };
            let number = |_| format!("`{word} {value}` is no number");
            match word.as_str() {
                "--store" => store = Some(value),
                "--minutes" => minutes = value.parse::<f64>().map_err(|error| number(error.to_string()))?,
                "--seed" => seed = value.parse().map_err(|error: std::num::ParseIntError| number(error.to_string()))?,
                _ => return Err(format!("`{word}` is not understood")),
            }
        }
        let name = store.ok_or("no store")?;
        let names = || stores().map(Store::name).collect::<Vec<_>>().join(", ");
        let store = stores().find(|store| store.name() == name);
        let store = store.ok_or_else(|| format!("there is no store `{name}`; the stores are {}", names()))?;
        Ok(Self { store, length: Duration::from_secs_f64(minutes * 60.0), seed })
    }

    fn run(&self) -> ExitCode {
        let Self { store, length, seed } = self;
        println!("{}: seed {seed}, {} s", store.name(), length.as_secs());
        let arena = Arena::new(*store, Server::AsShipped).unwrap();
        let folder = new_folder(Path::new("target/faults"), &format!("{}-{seed}", store.name()));
        fs::create_dir_all(&folder).unwrap();
        nemesis::run(&arena, &folder, *seed, *length);
        drop(arena);
        verdict(&folder)
    }
}

/// A folder of this name, or with a number after it if there is one: the history of an earlier run of the same seed stays.
fn new_folder(parent: &Path, name: &str) -> PathBuf {
    let mut folder = parent.join(name);
    let mut number = 2;
    while folder.exists() {
        folder = parent.join(format!("{name}-{number}"));
        number += 1;
    }
    folder
}

/// Judges a folder, and draws what is wrong.
fn verdict(folder: &Path) -> ExitCode {
    let lines = record::read(folder);
    let start = lines.first().map_or(0, record::Line::at);
    let verdict = judge(&lines);
    let faults = lines.iter().filter(|line| matches!(line, record::Line::Fault { .. })).count();
    let growth = Growth::of(&lines);
    let leaks = growth.as_ref().map_or_else(Vec::new, Growth::leaks);
    let Verdict { broken, documented, grants, writes } = &verdict;
    let wrong = broken.len() + leaks.len();
    println!(
        "{faults} faults, {grants} grants, {writes} fenced writes, {documented} documented losses (doc), {wrong} broken promises"
    );
    if let Some(growth) = growth {
        println!("{growth}");
    }
    leaks.iter().for_each(|leak| println!("a leak: {leak}"));
    println!("{}", folder.display());
    for (number, (violation, history)) in broken.iter().enumerate() {
        println!("{violation}, {} s after the start", seconds(violation.at - start));
        let picture = folder.join(format!("{number}.svg"));
        fs::write(&picture, judge::picture(violation, history)).unwrap();
        println!("  drawn: {}; again: cargo xtask faults --check {}", picture.display(), folder.display());
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
