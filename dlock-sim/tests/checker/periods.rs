//! Calls that run once in a period, and keys that stay taken.

use dlock_sim::{Failure, History, Period, Rule, Terms, What};

use crate::{DONE, DROPPED, OK, S, TERMS, acts, asks, begins, broken, fails, history};

const fn granted(token: u64) -> What {
    What::Grants { key: 0, token }
}

fn once(rerun: bool) -> Terms {
    Terms { once_per: Some(Period { length: 10 * S, rerun }), ..TERMS }
}

/// Two bodies, of which the first one runs in the period around 10 s.
fn two_runs(rerun: bool, ended: Option<What>, second: u64) -> History {
    let (end, answer) = if ended.is_some() { (DONE, OK) } else { (DROPPED, What::GivenUp) };
    let nothing = What::Note(String::new());
    history([
        (6, 1, 1, asks(&once(rerun))),
        (6, 1, 1, granted(7)),
        (7, 1, 1, begins(7)),
        (7, 1, 1, acts(16)),
        (8, 1, 1, end),
        (8, 0, 0, ended.unwrap_or(nothing)),
        (8, 1, 1, answer),
        (second, 2, 2, asks(&once(rerun))),
        (second, 2, 2, begins(second)),
        (second, 2, 2, acts(second + 9)),
        (second, 2, 2, DONE),
        (second, 2, 2, OK),
    ])
}

#[test]
fn two_bodies_begin_in_one_period() {
    const ENDED: What = What::EndsRun { key: 0, token: 7 };
    assert_eq!(broken(&two_runs(false, Some(ENDED), 14)), [Rule::OncePerPeriod]);
    assert_eq!(broken(&two_runs(false, Some(ENDED), 15)), []);
    assert_eq!(broken(&two_runs(false, None, 14)), [Rule::OncePerPeriod]);
    // It may run again until it has come to its end.
    assert_eq!(broken(&two_runs(true, None, 14)), []);
    assert_eq!(broken(&two_runs(true, Some(ENDED), 14)), [Rule::OncePerPeriod]);
}

#[test]
fn a_run_that_nobody_else_has_started_is_no_reason() {
    let refused = |other: u32| {
        history([
            (6, 1, 1, asks(&once(false))),
            (6, 2, 2, asks(&once(false))),
            (6, other, other, granted(7)),
            (7, 1, 1, fails(Failure::AlreadyRun)),
            (7, 2, 2, fails(Failure::Outage)),
        ])
    };
    assert_eq!(broken(&refused(2)), []);
    assert_eq!(broken(&refused(1)), [Rule::ErrorKind]);
}

#[test]
fn a_key_is_granted_before_its_time() {
    let kept = Terms { min_hold: 5 * S, ..TERMS };
    let again = |at| {
        history([
            (1, 1, 1, asks(&kept)),
            (1, 1, 1, granted(7)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(11)),
            (3, 1, 1, DONE),
            (3, 1, 1, OK),
            (3, 2, 2, asks(&TERMS)),
            (at, 2, 2, granted(8)),
            (at, 2, 2, fails(Failure::Outage)),
        ])
    };
    assert_eq!(broken(&again(5)), [Rule::MinHold]);
    assert_eq!(broken(&again(6)), []);
}

#[test]
fn a_key_is_kept_for_nobody() {
    let kept =
        history([(1, 1, 1, asks(&TERMS)), (2, 0, 0, What::Keeps { key: 0, token: 7 }), (2, 1, 1, What::GivenUp)]);
    assert_eq!(broken(&kept), [Rule::MinHold]);
}
