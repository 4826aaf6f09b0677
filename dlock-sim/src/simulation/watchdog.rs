//! Ends a program whose simulation hangs, and names the seed. A poll that does not return can be ended in no other way.

use std::process::exit;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::plan::Plan;

/// A seed takes milliseconds, and not this long on a busy machine either.
const LONGEST: Duration = Duration::from_secs(30);

/// The history that each thread runs: since when, and its command.
static RUNS: Mutex<Vec<(ThreadId, Instant, String)>> = Mutex::new(Vec::new());

fn runs() -> MutexGuard<'static, Vec<(ThreadId, Instant, String)>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches all simulations of this program from now on. One that takes too long is told, and the program ends.
pub fn watch(tell: fn(&str)) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(1));
                let hangs = |(_, since, _): &&(ThreadId, Instant, String)| since.elapsed() > LONGEST;
                let command = runs().iter().find(hangs).map(|(.., command)| command.clone());
                if let Some(command) = command {
                    tell(&format!("a simulation does not end: {command}"));
                    exit(1);
                }
            }
        });
    });
}

/// Until it is dropped, the plan runs on this thread.
pub(super) struct Watched;

pub(super) fn begin(plan: &Plan) -> Watched {
    runs().push((thread::current().id(), Instant::now(), plan.command()));
    Watched
}

impl Drop for Watched {
    fn drop(&mut self) {
        let own = thread::current().id();
        runs().retain(|(thread, ..)| *thread != own);
    }
}
