//! The workers of a run: their births, deaths and stops, each behind a network of its own.

use std::path::Path;
use std::time::Duration;

use dlock_sim::{Event, What};
use dlock_testkit::child::Child;
use dlock_testkit::{Mode, Proxy};
use fastrand::Rng;

use crate::arena::{Arena, PATIENCE, in_front_of, now};
use crate::holder::recipes::Recipe;
use crate::holder::worker;
use crate::record::{self, Line, Record};

/// The workers of a run, with their records.
pub(crate) struct Workers<'a> {
    arena: &'a Arena,
    pub(super) folder: &'a Path,
    ttl: Duration,
    recipe: Option<Recipe>,
    pub(super) record: Record,
    all: Vec<Worker>,
    born: u32,
}

/// The place of one worker. When it is killed, another process takes its place.
struct Worker {
    child: Child,
    process: u32,
    stopped: Option<u64>,
    /// Between it and the store; none where there is no network.
    proxies: Vec<Proxy>,
    /// The words of the store, through them.
    words: String,
}

impl<'a> Workers<'a> {
    /// Starts so many, with dlock or with a recipe in its place.
    pub(crate) fn start(
        arena: &'a Arena,
        folder: &'a Path,
        count: usize,
        ttl: Duration,
        recipe: Option<Recipe>,
        random: &mut Rng,
    ) -> Self {
        let record = Record::new(folder, 0);
        let mut workers = Self { arena, folder, ttl, recipe, record, all: Vec::new(), born: 0 };
        for _ in 0..count {
            let near = arena.near.clone();
            let (proxies, words) =
                if arena.store.is_remote() { in_front_of(&near).unwrap() } else { (Vec::new(), near) };
            let (child, process) = workers.bear(&words, random);
            workers.all.push(Worker { child, process, stopped: None, proxies, words });
        }
        for worker in &mut workers.all {
            worker.child.wait_line("working", PATIENCE).unwrap();
        }
        workers
    }

    fn bear(&mut self, words: &str, random: &mut Rng) -> (Child, u32) {
        self.born += 1;
        let mut variables = worker::variables(self.folder, self.born, self.ttl, random.u64(..)).to_vec();
        variables.extend(self.recipe.map(|recipe| ("RECIPE", format!("{recipe:?}"))));
        variables.push(("LOCKS", words.to_owned()));
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        (self.arena.child_with("work", &variables), self.born)
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The number of the process in this place.
    pub(super) fn process(&self, place: usize) -> u32 {
        self.all[place].process
    }

    /// Between the process in this place and the store.
    pub(super) fn proxies(&self, place: usize) -> &[Proxy] {
        &self.all[place].proxies
    }

    /// Sets the proxy mode for all workers.
    pub(crate) fn set(&self, mode: Mode) {
        self.all.iter().flat_map(|worker| &worker.proxies).for_each(|proxy| proxy.set(mode));
    }

    pub(crate) fn kill(&mut self, victim: usize, random: &mut Rng) {
        let (at, process) = (now().as_nanos(), self.all[victim].process);
        self.all[victim].child.kill9().unwrap();
        self.record.line(&Line::Killed { at, process });
        let words = self.all[victim].words.clone();
        let (child, process) = self.bear(&words, random);
        (self.all[victim].child, self.all[victim].process) = (child, process);
    }

    pub(crate) fn stop(&mut self, victim: usize) {
        let worker = &mut self.all[victim];
        worker.stopped = Some(now().as_nanos());
        worker.child.stop().unwrap();
    }

    pub(crate) fn wake(&mut self, victim: usize) {
        let worker = &mut self.all[victim];
        worker.child.cont().unwrap();
        let (until, process) = (now().as_nanos(), worker.process);
        if let Some(at) = worker.stopped.take() {
            self.record.line(&Line::Saw(Event { at, process, call: 0, what: What::Stands { until } }));
        }
    }

    /// Lets all come to their end.
    pub(crate) fn end(mut self) {
        record::calm(self.folder);
        for worker in &mut self.all {
            let fails = match worker.child.wait(PATIENCE) {
                Ok(status) if status.success() => continue,
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let text = format!("process {}: {fails}", worker.process);
            self.record.line(&Line::Left { at: now().as_nanos(), text });
        }
    }
}
