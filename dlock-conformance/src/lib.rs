//! The conformance suite: the promises of the contract as sentences, for every backend, also for strangers'.
//!
//! Give it a [`Store`] and print the [`Report`]. The suite branches on [`Capabilities`] only, never on a name; it uses
//! the [`Backend`] trait and nothing of what is built on it. See `docs/ADDING_A_BACKEND.md`.
//!
//! ```no_run
//! # async fn example(store: &dyn dlock_conformance::Store) {
//! use dlock_conformance::{Report, run};
//! let report = run(store).await;
//! println!("{}", Report::table(std::slice::from_ref(&report)));
//! assert!(report.is_clean());
//! # }
//! ```

// A library neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod carried;
mod cleanup;
mod client;
mod exclusion;
mod expiry;
mod faults;
mod fencing;
mod handover;
mod kept;
mod keys;
mod kinds;
mod notes;
mod permits;
mod readers;
mod report;
mod reserved;
mod runs;
mod sessions;
mod together;
mod unpolled;
mod waiting;
mod when;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use dlock_contract::{Backend, Capabilities, Clock, LockKey, Result};
use futures::FutureExt;
use futures::future::BoxFuture;

use bench::{Bench, Stop, Tested};
pub use report::{Outcome, Report, Row};

/// A store under test: how to reach it as another process would, and how to look behind the backend's back.
///
/// What a store cannot do is `None`, and the cases that need it are [`Outcome::Skipped`]: visible, and a failure for
/// whoever demands a clean report.
pub trait Store: Send + Sync {
    /// The name in the report.
    fn name(&self) -> String;

    /// Another client of the same store, with connections of its own, as another process would be.
    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>>;

    /// What is still in the store for that key, one line for each thing: the lock, places in line. The fencing counter
    /// is meant to stay and is left out. Asks the *store*, not the backend.
    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>>;

    /// Takes the lock away from its holder as an operator would: deletes the record, or kills the session.
    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        let _ = key;
        None
    }

    /// Makes the store unreachable for all clients until the returned value is dropped.
    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        let _ = outage;
        None
    }

    /// Kills the store as `kill -9` does, and starts it again.
    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }

    /// Does the store live inside this process? Then it cannot be cut off, and does not outlive its clients: the cases
    /// about that are not applicable.
    fn in_process(&self) -> bool {
        false
    }
}

/// How a store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections break, and new ones are refused.
    Refused,
    /// Connections stay, and nothing is answered.
    Silent,
}

/// Runs every case, one after another.
pub async fn run(store: &dyn Store) -> Report {
    let mut report = Report::new(store.name());
    for case in cases() {
        let outcome = case.run(store).await;
        report.add(case.name(), outcome);
    }
    report
}

/// Every case, most important first.
#[must_use]
pub fn cases() -> &'static [Case] {
    static ALL: LazyLock<Vec<Case>> = LazyLock::new(|| {
        [
            exclusion::CASES,
            expiry::CASES,
            sessions::CASES,
            fencing::CASES,
            cleanup::CASES,
            unpolled::CASES,
            waiting::CASES,
            handover::CASES,
            reserved::CASES,
            carried::CASES,
            together::CASES,
            kinds::CASES,
            readers::CASES,
            permits::CASES,
            kept::CASES,
            runs::CASES,
            keys::CASES,
            notes::CASES,
            faults::CASES,
        ]
        .concat()
    });
    &ALL
}

/// One promise of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    name: &'static str,
    disturbs: bool,
    when: fn(&Capabilities) -> Result<(), &'static str>,
    test: for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Tested>,
}

impl Case {
    /// The promise, as a sentence.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Does the case cut the store off or restart it? Then no other case may use the same store meanwhile.
    #[must_use]
    pub const fn disturbs(&self) -> bool {
        self.disturbs
    }

    /// Has a store with these capabilities given this promise?
    #[must_use]
    pub fn applies(&self, capabilities: &Capabilities) -> bool {
        (self.when)(capabilities).is_ok()
    }

    /// Tests the promise with fresh clients and fresh keys. A hang and a panic are failures. Needs a tokio runtime with
    /// timers and input/output.
    pub async fn run(&self, store: &dyn Store) -> Outcome {
        // Sleeps on the machine's clock end on dlock's own thread, which the core would have started.
        if let Err(error) = dlock_contract::engine::background() {
            return Outcome::Failed(error.to_string());
        }
        // A busy machine can be too slow for a short lease. Such a run proves nothing: it is done again, slower.
        for pace in [1, 2, 4, 8] {
            match self.attempt(store, pace).await {
                Ok(()) => return Outcome::Passed,
                Err(Stop::Late) => {}
                Err(Stop::Failed(text)) => return Outcome::Failed(text),
                Err(Stop::Skipped(text)) => return Outcome::Skipped(text),
                Err(Stop::NotApplicable(text)) => return Outcome::NotApplicable(text),
            }
        }
        Outcome::Failed("the machine or the store was too slow for leases eight times as long as usual".into())
    }

    async fn attempt(&self, store: &dyn Store, pace: u32) -> Tested {
        let bench = Bench::new(store, pace).await?;
        (self.when)(&bench.capabilities).map_err(|lacks| Stop::NotApplicable(lacks.into()))?;
        let limit = bench.limit();
        let test = AssertUnwindSafe((self.test)(&bench)).catch_unwind();
        match tokio::time::timeout(limit, test).await {
            Ok(Ok(tested)) => tested,
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
                Err(Stop::Failed(format!("panicked: {text}")))
            }
            Err(_) => Err(Stop::Failed(format!("did not end within {limit:?}"))),
        }
    }
}
