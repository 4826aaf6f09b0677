//! Tasks of one runtime that pass one hold on among themselves.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dlock::{Error, distributed_lock};

use crate::arena::JOB;

const TASKS: usize = 32;
const PASSES: usize = 1600;

/// The values that were read under the lock.
#[derive(Default)]
struct Seen {
    holds: usize,
    last: Option<Sight>,
    is_told: bool,
}

pub(super) async fn pass_on() {
    let seen = Arc::<Mutex<Seen>>::default();
    let tasks = (0..TASKS).map(|_| {
        let seen = seen.clone();
        tokio::spawn(async move { while hold(&seen).await.unwrap() {} })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Holds once; is there more to be seen?
#[distributed_lock(key = "job", ttl = "60s", wait = "60s", cohort = true)]
async fn hold(seen: &Mutex<Seen>) -> Result<bool, Error> {
    let (number, is_told) = {
        let mut seen = seen.lock().unwrap();
        seen.holds += 1;
        (seen.holds, seen.is_told)
    };
    if number % PASSES == 0 && !is_told {
        let now = Sight::here().await?;
        let mut seen = seen.lock().unwrap();
        // If the store has granted the lock again meanwhile, try once more.
        if let Some(before) = seen.last.as_ref().filter(|last| last.holder == now.holder) {
            now.tell_since(before);
            seen.is_told = true;
        }
        seen.last = Some(now);
    }
    // A woken thread must be asleep again at the next pass.
    thread::sleep(Duration::from_micros(50));
    // A caller that asks without a pause would find no waiter to pass the lock on to.
    tokio::task::yield_now().await;
    Ok(!is_told)
}

struct Sight {
    /// The owner to which the store granted the lock, and the time.
    holder: String,
    /// How often each other thread has gone to sleep, and its name.
    threads: BTreeMap<String, (u64, String)>,
}

impl Sight {
    async fn here() -> Result<Self, Error> {
        let holder = dlock::lock(JOB).holders().await?.note().cloned().unwrap().to_string();
        // This one is the first, and has the process's id.
        let me = std::process::id().to_string();
        let all = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap());
        let others = all.filter(|thread| thread.file_name() != *me).map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap();
            let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let slept = field("voluntary_ctxt_switches:").parse().unwrap();
            (thread.file_name().into_string().unwrap(), (slept, field("Name:").to_owned()))
        });
        Ok(Self { holder, threads: others.collect() })
    }

    fn tell_since(&self, before: &Self) {
        println!("passes {PASSES}");
        for (id, (slept, name)) in &self.threads {
            let before = before.threads.get(id).map_or(0, |(slept, _)| *slept);
            println!("woken {} times: {name}", slept - before);
        }
        println!("woken no more");
    }
}
