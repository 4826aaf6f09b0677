//! The suite is tested with a correct store and with lying ones: a case that catches no lie proves nothing.

#![expect(clippy::unwrap_used, reason = "a test may fail by it")]

#[path = "faulty_backends/carried.rs"]
mod carried;
#[path = "faulty_backends/circles.rs"]
mod circles;
#[path = "faulty_backends/client.rs"]
mod client;
#[path = "faulty_backends/ends.rs"]
mod ends;
#[path = "faulty_backends/lies.rs"]
mod lies;
#[path = "faulty_backends/limits.rs"]
mod limits;
#[path = "faulty_backends/line.rs"]
mod line;
#[path = "faulty_backends/looks.rs"]
mod looks;
#[path = "faulty_backends/runs.rs"]
mod runs;
#[path = "faulty_backends/server.rs"]
mod server;
#[path = "faulty_backends/store.rs"]
mod store;
#[path = "faulty_backends/together.rs"]
mod together;

use std::collections::BTreeSet;
use std::sync::Arc;

use dlock_conformance::{Outcome, Report, cases, closed};
use tokio::sync::Semaphore;

use lies::{LIES, Lie, SETUPS};
use server::Setup;
use store::{LateAtFirst, Reference};

/// Every lie is caught by exactly its cases, and every case is the only one to catch some lie.
#[test]
fn each_case_of_the_suite_catches_its_lying_store() {
    let plan: Vec<_> = LIES.iter().map(|&(lie, setup, _)| (setup, Some(lie))).collect();
    let reports = run(&plan);
    let mut wrong = Vec::new();
    for ((lie, setup, expected), report) in LIES.iter().zip(&reports) {
        let caught_in = |report: &Report| report.failures().map(|row| row.case.clone()).collect::<BTreeSet<_>>();
        let expects = |caught: &BTreeSet<String>| caught.iter().eq(expected.iter().collect::<BTreeSet<_>>());
        // Some lies are caught by the order of two tasks. On a busy machine one may escape, so it is told again.
        let again = || (0..8).any(|_| expects(&caught_in(&run(&[(*setup, Some(*lie))])[0])));
        let caught = caught_in(report);
        if !expects(&caught) && !again() {
            let rows =
                report.rows.iter().filter(|row| expected.contains(&row.case.as_str()) || caught.contains(&row.case));
            let rows: Vec<_> = rows.map(|row| format!("    {}: {}", row.case, row.outcome)).collect();
            wrong.push(format!("{lie:?} was to be caught by {expected:?}:\n{}", rows.join("\n")));
        }
    }
    for case in cases() {
        if !LIES.iter().any(|(_, _, expected)| *expected == [case.name()]) {
            wrong.push(format!("no lie is caught by this case alone: {}", case.name()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The correct store passes everything, and every case applies to some setup of it.
#[test]
fn a_correct_store_passes_the_suite() {
    let reports = run(&SETUPS.map(|setup| (setup, None)));
    let table = Report::table(&reports);
    assert!(reports.iter().all(Report::is_clean), "{table}");
    for (row, case) in cases().iter().enumerate() {
        let passed = reports.iter().any(|report| report.rows[row].outcome == Outcome::Passed);
        assert!(passed, "{} applies to no setup:\n{table}", case.name());
    }
}

/// A store that does not answer for a moment has broken no promise. One that never answers is no store.
#[tokio::test]
async fn a_store_that_is_late_once_passes_and_one_that_never_answers_does_not() {
    let case = &cases()[0];
    let run = async |lost: u32| {
        let store = LateAtFirst { store: Reference::new(SETUPS[0], None), lost: lost.into() };
        case.run(&store, &closed(&store.store).await.unwrap()).await
    };
    for lost in [1, 2] {
        assert_eq!(run(lost).await, Outcome::Passed, "{lost}");
    }
    let Outcome::Failed(why) = run(u32::MAX).await else { panic!("it never answers") };
    assert!(why.contains("too slow") && why.contains("the server is late"), "{why}");
}

/// Every case for every plan, each with a store of its own, so that they can run side by side.
fn run(plan: &[(Setup, Option<Lie>)]) -> Vec<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let turns = Arc::new(Semaphore::new(128));
        let mut running = Vec::new();
        for &(setup, lie) in plan {
            let spawned = cases().iter().map(|case| {
                let turns = turns.clone();
                tokio::spawn(async move {
                    let _turn = turns.acquire().await;
                    let store = Reference::new(setup, lie);
                    case.run(&store, &closed(&store).await.unwrap()).await
                })
            });
            running.push((setup, spawned.collect::<Vec<_>>()));
        }
        let mut reports = Vec::new();
        for (setup, tasks) in running {
            let mut report = Report::new(setup.name.into());
            for (case, task) in cases().iter().zip(tasks) {
                report.add(case.name(), task.await.unwrap());
            }
            reports.push(report);
        }
        reports
    })
}
