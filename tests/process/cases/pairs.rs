//! Two stores that must agree, and workers that see them differently: some without the gate, some with one store alone.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dlock_sim::{Event, Rule, What};
use dlock_testkit::Mode;
use dlock_testkit::child::Child;

use super::nemesis::WORKER_TTL;
use crate::arena::{Arena, PATIENCE};
use crate::faults::judge;
use crate::holder::worker;
use crate::record::{self, Line};

/// So many grants of one worker, or since the last change, are enough to go on.
const ENOUGH: usize = 5;

/// Workers that write their grants into files of their own.
struct Workers<'a> {
    arena: &'a Arena,
    born: u32,
}

impl<'a> Workers<'a> {
    fn of(arena: &'a Arena) -> Self {
        std::fs::create_dir(arena.folder.path().join("records")).unwrap();
        Self { arena, born: 0 }
    }

    /// A worker on the store with these words, once it works.
    fn bear(&mut self, words: &str) -> Child {
        self.born += 1;
        let variables = [("LOCKS", words.to_owned())].into_iter().chain(worker::variables(
            &self.folder(),
            self.born,
            WORKER_TTL,
            fastrand::u64(..),
        ));
        let variables: Vec<_> = variables.collect();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut child = self.arena.child_with("work", &variables);
        child.wait_line("working", PATIENCE).unwrap();
        child
    }

    fn folder(&self) -> PathBuf {
        self.arena.folder.path().join("records")
    }

    fn grants(&self) -> usize {
        judge(&record::read(&self.folder())).grants
    }

    fn grants_of_the_last(&self) -> usize {
        let begins = |line: &Line| matches!(line, Line::Saw(Event { process, what: What::Begins { .. }, .. }) if *process == self.born);
        record::read(&self.folder()).iter().filter(|line| begins(line)).count()
    }

    /// Waits until the newest worker has had the lock.
    fn until_the_last_has_worked(&self) {
        let start = Instant::now();
        while self.grants_of_the_last() < ENOUGH {
            assert!(start.elapsed() < PATIENCE, "worker {} gets no lock", self.born);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the newest worker, whose store was away, has had the lock once more.
    fn until_the_last_has_worked_again(&self) {
        let (start, before) = (Instant::now(), self.grants_of_the_last());
        while self.grants_of_the_last() == before {
            assert!(start.elapsed() < PATIENCE, "worker {} gets no lock although its stores are back", self.born);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for so many grants to any worker, and at least for this time.
    fn until_there_are_more(&self, grants: usize, at_least: Duration, what: &str) {
        let (start, before) = (Instant::now(), self.grants());
        while start.elapsed() < at_least || self.grants() < before + grants {
            assert!(start.elapsed() < PATIENCE, "{what}: no worker gets a lock while half of them are cut off");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Of two believers and of tokens alone: the processes were killed as they stood, so their calls have no end.
    fn assert_right(&self, what: &str) {
        let verdict = judge(&record::read(&self.folder()));
        println!("{what}: {} grants to {} workers", verdict.grants, self.born);
        for rule in [Rule::OneBeliever, Rule::TokensRise, Rule::FencedWrites] {
            assert!(!verdict.breaks(rule), "{what}: {rule:?} {:?}", self.arena.folder);
        }
    }
}

/// Half of the workers reach the gate through a proxy that cuts and swallows. They go on with the authority alone.
pub(super) fn workers_that_do_not_reach_the_gate_exclude_those_that_do(arena: &Arena) {
    let mut workers = Workers::of(arena);
    let [near, far] = [&arena.near, &arena.far].map(|words| format!("{words}&gate_down=authority"));
    let mut children: Vec<Child> = [&near, &far, &near, &far].map(|words| workers.bear(words)).into();
    let gate = &arena.proxies[0];
    for mode in [Mode::Refuse, Mode::Pass, Mode::BLACKHOLE, Mode::Refuse, Mode::DropReplies, Mode::Pass] {
        gate.set(mode);
        // A worker that is born while its gate is down could not open it.
        if mode == Mode::Pass {
            children[1].kill9().unwrap();
            children[1] = workers.bear(&far);
            workers.until_the_last_has_worked();
        }
        workers.until_there_are_more(4 * ENOUGH, Duration::from_secs(1), &format!("gate {mode:?}"));
    }
    drop(children);
    workers.assert_right("gate cut for half");
}

/// Half of the workers reach one store of the pair through a proxy that cuts and swallows. They get no lock then.
pub(super) fn workers_that_do_not_reach_the_gate_or_the_authority_exclude_those_that_do(arena: &Arena) {
    let [gate, authority] = &arena.proxies[..] else { panic!("{} proxies", arena.proxies.len()) };
    for (gate_down, cut) in [("fail", vec![gate, authority]), ("authority", vec![authority])] {
        let folder = arena.folder.path().join("records");
        if folder.exists() {
            std::fs::rename(&folder, arena.folder.path().join("records of the first")).unwrap();
        }
        let mut workers = Workers::of(arena);
        let [near, far] = [&arena.near, &arena.far].map(|words| format!("{words}&gate_down={gate_down}"));
        let children: Vec<Child> = [&near, &near, &far, &far].map(|words| workers.bear(words)).into();
        for proxy in cut {
            for mode in [Mode::Refuse, Mode::BLACKHOLE, Mode::DropReplies] {
                proxy.set(mode);
                workers.until_there_are_more(2 * ENOUGH, Duration::ZERO, &format!("{gate_down}, {mode:?}"));
            }
            proxy.set(Mode::Pass);
            workers.until_the_last_has_worked_again();
        }
        drop(children);
        workers.assert_right(&format!("one store cut for half, gate_down={gate_down}"));
    }
}

/// Three processes are replaced, killed as they stand: one by one from the old store to both, all at once from the tokens of
/// the old one to those of the new one, and one by one to the new store.
pub(super) fn a_rolling_deployment_from_one_store_to_another_never_overlaps(arena: &Arena) {
    let words: Vec<&str> = arena.near.split(' ').collect();
    let (redis, row) = (words[0], words[1]);
    let file = format!("sqlite://{}", arena.folder.path().join("locks.db").display());
    for (number, (old, new)) in [(redis, row), (file.as_str(), redis)].into_iter().enumerate() {
        let folder = arena.folder.path().join("records");
        if number > 0 {
            std::fs::rename(&folder, arena.folder.path().join("records of the first")).unwrap();
        }
        let mut workers = Workers::of(arena);
        let both = format!("{old} {new} migrating://?old=first&new=second");
        let numbers = format!("{both}&numbers=new");
        let mut children: Vec<Child> = (0..3).map(|_| workers.bear(old)).collect();
        workers.until_the_last_has_worked();
        for (step, one_by_one) in [(both.as_str(), true), (&numbers, false), (new, true)] {
            // Two counts cannot be compared, so between them there is a moment in which nobody runs.
            for child in children.iter_mut().filter(|_| !one_by_one) {
                child.kill9().unwrap();
            }
            for child in &mut children {
                if one_by_one {
                    child.kill9().unwrap();
                }
                *child = workers.bear(step);
                workers.until_the_last_has_worked();
            }
        }
        drop(children);
        workers.assert_right("rolling deployment");
    }
}
