//! Several processes and several locks. A nemesis stops, wakes and kills the processes at random.

use std::thread;
use std::time::{Duration, Instant};

use dlock_sim::Rule;
use fastrand::Rng;
use libtest_mimic::Trial;

use crate::arena::{Arena, Server};
use crate::faults::{Verdict, Workers, judge};
use crate::holder::recipes::{self, Recipe};
use crate::record;
use crate::store::Store;

const PROCESSES: usize = 4;
const LENGTH: Duration = Duration::from_secs(8);

/// On a busy machine little happens in that time; then it goes on until enough has, but not for ever.
const LONGEST: Duration = Duration::from_secs(60);
const ENOUGH: usize = 20;

/// Short, so that a history of seconds has many takeovers.
pub(super) const WORKER_TTL: Duration = Duration::from_secs(1);

/// The ttl of recipes. They are to go wrong soon.
const RECIPE_TTL: Duration = Duration::from_millis(150);

pub(super) fn at_most_one_holder_whatever_befalls_the_processes(arena: &Arena) {
    let seed = super::seed(arena);
    let mut random = Rng::with_seed(seed);
    let folder = arena.folder.path().join("records");
    std::fs::create_dir(&folder).unwrap();
    let mut workers = Workers::start(arena, &folder, PROCESSES, WORKER_TTL, None, &mut random);
    let (mut killed, mut stopped) = (0, 0);
    let start = Instant::now();
    let enough = |killed, stopped| killed > 0 && stopped > 0 && judge(&record::read(&folder)).grants > ENOUGH;
    while start.elapsed() < LENGTH || (start.elapsed() < LONGEST && !enough(killed, stopped)) {
        thread::sleep(WORKER_TTL.mul_f64(random.f64() / 2.0));
        let victim = random.usize(..PROCESSES);
        if random.u8(..3) == 0 {
            workers.kill(victim, &mut random);
            killed += 1;
        } else {
            workers.stop(victim);
            thread::sleep(WORKER_TTL.mul_f64(random.f64() * 1.5));
            workers.wake(victim);
            stopped += 1;
        }
    }
    workers.end();
    let verdict = judge(&record::read(&folder));
    println!("{}: {} grants, {killed} kills, {stopped} stops", arena.store.name(), verdict.grants);
    assert!(enough(killed, stopped), "too little happened: nothing is proven");
    // Rules about time say nothing where many programs wait for a core. `cargo xtask faults` has them too, on a machine of its own.
    let counts = |rule| !matches!(rule, Rule::LossIsTold | Rule::NoHang);
    let broken = verdict.broken.iter().map(|(violation, _)| violation).filter(|violation| counts(violation.rule));
    let wrong: Vec<_> = broken.map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "DLOCK_SEED={seed}: {wrong:#?}");
}

/// The checker itself: it finds two believers with each wrong recipe, and none with the right one.
pub(crate) fn trials() -> Vec<Trial> {
    recipes::ALL.map(|recipe| Trial::test(format!("checker::{recipe:?}"), move || tries(recipe))).into()
}

fn tries(recipe: Recipe) -> Result<(), libtest_mimic::Failed> {
    let store = if recipe == Recipe::ClientClock { Store::Sqlite } else { Store::Redis };
    let arena = Arena::new(store, Server::Shared)?;
    let folder = arena.folder.path().join("records");
    std::fs::create_dir(&folder)?;
    let mut random = Rng::new();
    let mut workers = Workers::start(&arena, &folder, PROCESSES, RECIPE_TTL, Some(recipe), &mut random);
    // A request takes a part of a lease.
    workers.set(dlock_testkit::Mode::Delay { to_server: RECIPE_TTL / 10, to_client: RECIPE_TTL / 5 });
    let start = Instant::now();
    let is_right = recipe == Recipe::Right;
    let (mut verdict, mut stops) = (Verdict::default(), 0);
    let found = |verdict: &Verdict| verdict.breaks(Rule::OneBeliever);
    while !found(&verdict) && start.elapsed() < if is_right { LENGTH / 4 } else { LONGEST } {
        // Half of them, so that the others take over.
        let first = random.usize(..PROCESSES);
        let victims = [first, (first + 1) % PROCESSES];
        thread::sleep(RECIPE_TTL);
        victims.into_iter().for_each(|victim| workers.stop(victim));
        thread::sleep(RECIPE_TTL.mul_f64(0.5 + random.f64() * 1.5));
        victims.into_iter().for_each(|victim| workers.wake(victim));
        stops += 1;
        verdict = judge(&record::read(&folder));
    }
    println!("{recipe:?}: {:?}, {stops} stops, {} grants", start.elapsed(), verdict.grants);
    assert_eq!(found(&verdict), !is_right, "{recipe:?}: {} grants", verdict.grants);
    Ok(())
}
