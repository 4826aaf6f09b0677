//! Real processes, real servers, real kills: the promises about faults, as sentences, for every store.
//!
//! Two tables make the trials: [`store::ALL`] × [`cases::ALL`]. Some stores take part with `cargo xtask test --all` alone. Another process is this binary again, see [`holder`];
//! what is left behind is asked of the server, not of dlock, see [`probes`]. With the words of `cargo xtask faults` it makes random
//! faults instead, see [`faults`].
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "processes talk to each other by their output")]

mod arena;
mod cases;
mod faults;
mod holder;
mod probes;
mod record;
mod register;
mod resource;
mod store;

use std::process::ExitCode;

use dlock_testkit::{child, is_thorough, lateness};
use libtest_mimic::{Arguments, Trial};

use arena::Arena;

/// More than there are cores: a trial waits most of its time for a ttl to pass.
const SIDE_BY_SIDE: usize = 6;

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        holder::play(&role);
        return ExitCode::SUCCESS;
    }
    if let Some(words) = faults::words() {
        return faults::run(&words);
    }
    lateness::watch();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(SIDE_BY_SIDE);
    if !is_thorough() {
        // So the harness counts what is left.
        let others = store::ALL.iter().filter(|store| !store.is_in_every_run());
        arguments.skip.extend(others.map(|store| format!("{}::", store.name())));
    }
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let mut trials = [faults::judge_trials(), cases::checker_trials()].into_iter().flatten().collect::<Vec<_>>();
    for case in cases::ALL {
        for store in store::ALL {
            if (case.applies)(store) {
                let name = format!("{}::{}", store.name(), case.name);
                trials.push(Trial::test(name, move || {
                    (case.run)(&Arena::new(store, case.server)?);
                    Ok(())
                }));
            }
        }
    }
    trials
}
