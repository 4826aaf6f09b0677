//! `cargo xtask sim`: simulates many seeds, and tells the first that breaks a promise.

use dlock_sim::{Plan, check, run};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (from, seeds): (u64, u64) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let start = std::time::Instant::now();
    let mut bad = 0;
    let mut events = 0;
    let mut rules = std::collections::BTreeMap::new();
    for seed in from..from + seeds {
        let plan = Plan::of(seed);
        let history = run(&plan, false);
        events += history.events.len();
        if words.get(2).is_some_and(|w| w == "show") {
            println!("{plan:#?}\n{}", run(&plan, true));
            for v in check(&history) { println!("{v}"); }
        }
        if words.get(2).is_some_and(|w| w == "twice") {
            assert_eq!(history.hash(), run(&plan, false).hash(), "seed {seed}");
        }
        let found = check(&history);
        for one in found.iter().take(1) {
            let count = rules.entry(one.rule).or_insert(0);
            *count += 1;
            bad += 1;
            if *count < 4 {
                println!("seed {seed}: {one}");
            }
        }
    }
    println!("{seeds} seeds, {bad} bad, {events} events, {:?} {rules:?}", start.elapsed());
}
