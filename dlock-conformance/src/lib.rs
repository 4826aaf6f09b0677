//! The conformance suite: the promises of the contract as sentences, for every backend, also for your own.
//!
//! Give it a [`Store`] and print the [`Report`]. The suite branches on [`Profile`](dlock_contract::Profile) and on the
//! powers that a [`Backend`](dlock_contract::Backend) offers, never on a name. It uses only the trait
//! [`Backend`](dlock_contract::Backend), and nothing that is built on it. See `docs/ADDING_A_BACKEND.md`.
//!
//! ```no_run
//! # async fn example(store: &dyn dlock_conformance::Store) {
//! use dlock_conformance::{Report, run};
//! let report = run(store).await;
//! println!("{}", Report::table(std::slice::from_ref(&report)));
//! assert!(report.is_clean());
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod carried;
mod case;
mod circles;
mod cleanup;
mod client;
mod exclusion;
mod expiry;
mod faults;
mod fencing;
mod fixture;
mod handover;
mod inspect;
mod kept;
mod keys;
mod many;
mod meetings;
mod modes;
mod notes;
mod overtaken;
mod periods;
mod permits;
mod readers;
mod report;
mod reserved;
mod runs;
mod sessions;
mod settled;
mod store;
mod tested;
mod together;
mod unpolled;
mod waiting;
mod when;

use std::sync::LazyLock;

pub use case::{Case, closed};
pub use report::{Outcome, Report, Row};
pub use store::{Outage, Store};

/// Runs every case, one after another.
pub async fn run(store: &dyn Store) -> Report {
    let mut report = Report::new(store.name());
    let closed = closed(store).await;
    for case in cases() {
        let outcome = match &closed {
            Ok(closed) => case.run(store, closed).await,
            Err(error) => Outcome::Failed(format!("the store could not be opened: {error}")),
        };
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
            meetings::CASES,
            overtaken::CASES,
            waiting::CASES,
            handover::CASES,
            reserved::CASES,
            carried::CASES,
            together::CASES,
            modes::CASES,
            readers::CASES,
            permits::CASES,
            kept::CASES,
            settled::CASES,
            circles::CASES,
            runs::CASES,
            periods::CASES,
            keys::CASES,
            many::CASES,
            notes::CASES,
            inspect::CASES,
            faults::CASES,
        ]
        .concat()
    });
    &ALL
}
