//! `cargo xtask sim`: simulates many seeds. It prints each seed that breaks a promise with its command, makes it smaller, and draws it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dlock_sim::{LIES, Lie, MUTANTS, Plan, Rule, check, draw, run, shrink, watch};

const USAGE: &str = "\
Usage: cargo xtask sim --seeds N [--from S] [--mutant NAME | --lie NAME] [--twice] [--hunt]

  --seeds N      how many seeds
  --from S       the first one; 0 without it
  --mutant NAME  a planted fault of the engine
  --lie NAME     a planted fault of the store
  --twice        runs each seed twice, and compares the histories
  --hunt         looks for each planted fault by itself, until a seed finds it
";

/// Further seeds that break the same promise are counted.
const DRAWN_OF_A_RULE: u32 = 2;

#[derive(Clone, Default)]
struct Words {
    seeds: u64,
    from: u64,
    mutant: &'static str,
    lie: Lie,
    twice: bool,
    hunt: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(words) = Words::of(&words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    watch(|hang| eprintln!("{hang}"));
    let is_good = if words.hunt { hunt(&words) } else { simulate(&words) };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Words {
    fn of(words: &[String]) -> Option<Self> {
        let mut read = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seeds" => read.seeds = words.next()?.parse().ok()?,
                "--from" => read.from = words.next()?.parse().ok()?,
                "--mutant" => {
                    read.mutant =
                        MUTANTS.into_iter().find(|known| Some(*known) == words.clone().next().map(|word| &**word))?
                }
                "--lie" => {
                    read.lie =
                        LIES.into_iter().find(|known| Some(format!("{known:?}")) == words.clone().next().cloned())?
                }
                "--twice" => read.twice = true,
                "--hunt" => read.hunt = true,
                _ => return None,
            }
            if let "--mutant" | "--lie" = word.as_str() {
                words.next();
            }
        }
        (read.seeds > 0).then_some(read)
    }

    fn plan(&self, seed: u64) -> Plan {
        Plan::of(seed).mutated(self.mutant).lied_to(self.lie)
    }
}

#[derive(Default)]
struct Found {
    by_rule: BTreeMap<Rule, u32>,
    events: u64,
    /// The virtual time of all histories, in seconds.
    time: f64,
    differ: u64,
}

/// False if a promise is broken.
fn simulate(words: &Words) -> bool {
    let (start, next, found) = (Instant::now(), AtomicU64::new(words.from), Mutex::new(Found::default()));
    let end = words.from.saturating_add(words.seeds);
    let cores =
        std::thread::available_parallelism().map_or(1, usize::from).min(usize::try_from(words.seeds).unwrap_or(1));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    one(words, seed, &found);
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_default();
    let (took, bad) = (start.elapsed().as_secs_f64(), found.by_rule.values().sum::<u32>());
    println!(
        "{} seeds from {}, of {:.0} virtual seconds and {} events each, {:.1} s, {:.0} seeds a second on {cores} cores: {bad} break a promise {:?}",
        words.seeds,
        words.from,
        found.time / words.seeds as f64,
        found.events / words.seeds,
        took,
        words.seeds as f64 / took,
        found.by_rule
    );
    if found.differ > 0 {
        println!("{} seeds gave two histories", found.differ);
    }
    bad == 0 && found.differ == 0
}

fn one(words: &Words, seed: u64, found: &Mutex<Found>) {
    let plan = words.plan(seed);
    let history = run(&plan, false);
    let differs = words.twice && run(&plan, false).hash() != history.hash();
    let violations = check(&history);
    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.events += history.events.len() as u64;
    found.time += history.events.last().map_or(0.0, |event| event.at as f64 / 1e9);
    if differs {
        found.differ += 1;
        println!("seed {seed} gave two histories: {}", plan.command());
    }
    let Some(first) = violations.first() else { return };
    let count = found.by_rule.entry(first.rule).or_default();
    *count += 1;
    if *count <= DRAWN_OF_A_RULE {
        println!("seed {seed}: {first}\n  {}", plan.command());
        explain(plan, first.rule, seed);
    }
}

/// Writes the smaller history as text and as a picture.
fn explain(plan: Plan, rule: Rule, seed: u64) {
    let smaller = shrink(plan, rule);
    let history = run(&smaller, true);
    let violations = check(&history);
    let folder = Path::new("target/sim");
    let (picture, text) = (folder.join(format!("{seed}.svg")), folder.join(format!("{seed}.txt")));
    let broken = violations.iter().map(|violation| format!("{violation}\n")).collect::<String>();
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&picture, draw(&history, &violations)))
        .and_then(|()| fs::write(&text, format!("{broken}\n{smaller:#?}\n\n{history}")));
    match written {
        Ok(()) => println!("  made smaller and drawn: {}, {}", picture.display(), text.display()),
        Err(error) => println!("  {}: {error}", folder.display()),
    }
}

/// False if a planted fault is not found.
fn hunt(words: &Words) -> bool {
    let lies = LIES.into_iter().map(|lie| (format!("{lie:?}"), Words { lie, ..words.clone() }));
    let mutants = MUTANTS.into_iter().map(|mutant| (mutant.to_owned(), Words { mutant, ..words.clone() }));
    let mut all_found = true;
    for (name, words) in lies.chain(mutants) {
        let is_clean = |seed: &u64| check(&run(&Plan::of(*seed), false)).is_empty();
        let find = |seed| {
            let first = check(&run(&words.plan(seed), false)).into_iter().next()?;
            // One that fails without the fault proves nothing.
            Some(seed).filter(is_clean).map(|seed| (seed, first))
        };
        match (words.from..words.from.saturating_add(words.seeds)).find_map(find) {
            Some((seed, first)) => println!("{name}: seed {seed}: {first}"),
            None => {
                all_found = false;
                println!("{name}: NOT FOUND");
            }
        }
    }
    all_found
}
