//! Waits: in their order, and for a lock that somebody has; and the longest hold.

use dlock_sim::{Failure, History, Rule, Terms, What};

use crate::{DONE, OK, S, TERMS, acts, asks, begins, broken, fails, history};

#[test]
fn a_later_caller_is_served_before_one_in_the_queue() {
    let fair = Terms { fair: true, waits: 20 * S, ..TERMS };
    let served = |queued: u64, what: What| {
        history([
            (1, 1, 1, asks(&fair)),
            (queued, 1, 1, What::Queues { key: 0 }),
            (4, 2, 2, asks(&fair)),
            (5, 1, 0, what),
            (6, 2, 2, begins(8)),
            (6, 2, 2, acts(16)),
            (7, 2, 2, DONE),
            (7, 2, 2, OK),
            (9, 1, 1, fails(Failure::Outage)),
        ])
    };
    let nothing = || What::Note(String::new());
    assert_eq!(broken(&served(2, nothing())), [Rule::InOrder]);
    // It came to the queue later, has stood still, or the queue is gone.
    assert_eq!(broken(&served(5, nothing())), []);
    assert_eq!(broken(&served(2, What::Stands { until: 6 * S })), []);
    assert_eq!(broken(&served(2, What::Restarts { time: S, forgets: false })), []);
}

#[test]
fn a_wait_runs_out_although_nobody_has_the_lock() {
    let waits = |other: u64, first: What| -> History {
        let patient = Terms { waits: 20 * S, ..TERMS };
        history([
            (0, 0, 0, first),
            (1, 1, 1, asks(&patient)),
            (1, 2, 2, asks(&patient)),
            (2, 2, 2, What::Grants { key: 0, token: 7 }),
            (other, 2, 2, What::GivenUp),
            (21, 1, 1, fails(Failure::WaitTimeout)),
        ])
    };
    assert_eq!(broken(&waits(4, What::Faultless)), [Rule::NoHang]);
    assert_eq!(broken(&waits(8, What::Faultless)), []);
    assert_eq!(broken(&waits(4, What::Note(String::new()))), []);
}

#[test]
fn a_hold_lasts_longer_than_it_may() {
    let believes = |until| {
        history([
            (1, 1, 1, asks(&Terms { max_hold: Some(11 * S), ..TERMS })),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(until)),
            (3, 1, 1, DONE),
            (3, 1, 1, OK),
        ])
    };
    assert_eq!(broken(&believes(13)), []);
    assert_eq!(broken(&believes(14)), [Rule::MaxHold]);
    let early = history([(1, 1, 1, asks(&TERMS)), (2, 1, 1, fails(Failure::MaxHold))]);
    assert_eq!(broken(&early), [Rule::ErrorKind]);
}
