//! Several processes and several locks. A nemesis stops, wakes and kills the processes at random.

use std::time::{Duration, Instant};

use dlock_testkit::child::Child;
use fastrand::Rng;

use crate::arena::{Arena, PATIENCE};
use crate::history;
use crate::holder::WORKER_TTL;

const PROCESSES: usize = 4;
const LENGTH: Duration = Duration::from_secs(8);

/// On a busy machine little happens in that time; then it goes on until enough has, but not for ever.
const LONGEST: Duration = Duration::from_secs(60);
const ENOUGH: usize = 20;

pub(super) fn at_most_one_holder_whatever_befalls_the_processes(arena: &Arena) {
    let seed = super::seed(arena);
    let mut random = Rng::with_seed(seed);
    let folder = arena.folder.path().join("records");
    std::fs::create_dir(&folder).unwrap();
    let mut born = 0;
    let mut bear = |random: &mut Rng| {
        born += 1;
        let record = folder.join(format!("{born}"));
        let seed = random.u64(..).to_string();
        let mut child = arena.child_with("work", &[("RECORD", record.to_str().unwrap()), ("SEED", &seed)]);
        child.wait_line("working", PATIENCE).unwrap();
        child
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| bear(&mut random)).collect();
    let (mut killed, mut stopped) = (0, 0);
    let start = Instant::now();
    let enough = |killed, stopped| killed > 0 && stopped > 0 && history::read(&folder).len() > ENOUGH;
    while start.elapsed() < LENGTH || (start.elapsed() < LONGEST && !enough(killed, stopped)) {
        std::thread::sleep(WORKER_TTL.mul_f64(random.f64() / 2.0));
        let victim = random.usize(..PROCESSES);
        if random.u8(..3) == 0 {
            children[victim].kill9().unwrap();
            children[victim] = bear(&mut random);
            killed += 1;
        } else {
            children[victim].stop().unwrap();
            std::thread::sleep(WORKER_TTL.mul_f64(random.f64() * 1.5));
            children[victim].cont().unwrap();
            stopped += 1;
        }
    }
    // Time for processes that were just woken to write what they believe.
    std::thread::sleep(WORKER_TTL);
    drop(children);
    let holds = history::read(&folder);
    println!("{}: {} grants, {killed} kills, {stopped} stops", arena.store.name(), holds.len());
    assert!(holds.len() > ENOUGH && killed > 0 && stopped > 0, "too little happened: nothing is proven");
    let wrong = history::contradictions(&holds);
    assert!(wrong.is_empty(), "DLOCK_SEED={seed}: {wrong:#?}");
}
