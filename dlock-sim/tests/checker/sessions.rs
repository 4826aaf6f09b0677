//! Holds that live in sessions, and those that are transactions.

use dlock_sim::{Failure, History, Rule, Terms, What, Work};

use crate::{DONE, DROPPED, OK, S, TERMS, acts, asks, begins, broken, fails, history};

const ENDS: What = What::Forgets { key: Some(0), from: 7, to: 7 };

const fn is_told(by: u64) -> What {
    What::EndIsTold { key: 0, from: 7, to: 7, by: by * S }
}

#[test]
fn the_lock_of_a_session_that_has_ended_may_be_granted_again() {
    let other = |forgotten: What| {
        history([
            (1, 1, 1, asks(&TERMS)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (3, 0, 0, forgotten),
            (4, 2, 2, asks(&TERMS)),
            (4, 2, 2, begins(8)),
            (4, 2, 2, acts(14)),
            (5, 1, 1, DROPPED),
            (5, 1, 1, fails(Failure::Lost)),
            (6, 2, 2, DONE),
            (6, 2, 2, OK),
        ])
    };
    assert_eq!(broken(&other(ENDS)), []);
    // That of another key, or of another hold.
    assert_eq!(broken(&other(What::Forgets { key: Some(1), from: 7, to: 7 })), [Rule::OneBeliever]);
    assert_eq!(broken(&other(What::Forgets { key: Some(0), from: 5, to: 6 })), [Rule::OneBeliever]);
}

#[test]
fn a_body_does_not_hear_of_the_end_of_its_session() {
    let dropped = |at| {
        history([
            (1, 1, 1, asks(&TERMS)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (3, 0, 0, ENDS),
            (4, 0, 0, is_told(5)),
            (at, 1, 1, DROPPED),
            (at, 1, 1, fails(Failure::Lost)),
        ])
    };
    assert_eq!(broken(&dropped(5)), []);
    assert_eq!(broken(&dropped(6)), [Rule::LossIsTold]);
}

#[test]
fn a_call_succeeds_although_its_session_ended_before_its_body() {
    let answered = |confirms, answer| {
        history([
            (1, 1, 1, asks(&Terms { confirms, ..TERMS })),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (3, 0, 0, ENDS),
            (4, 1, 1, DONE),
            (5, 1, 1, answer),
        ])
    };
    assert_eq!(broken(&answered(true, OK)), [Rule::OkIsCovered]);
    assert_eq!(broken(&answered(true, fails(Failure::Lost))), []);
    assert_eq!(broken(&answered(false, OK)), []);
}

/// One call whose body works, and its end.
fn works<const N: usize>(work: Work, end: [What; N]) -> History {
    let mut works =
        history([(1, 1, 1, asks(&Terms { work: Some(work), ..TERMS })), (2, 1, 1, begins(7)), (2, 1, 1, acts(12))]);
    end.into_iter().for_each(|what| works.add(3 * S, 1, 1, what));
    works
}

#[test]
fn work_is_final_if_the_call_succeeds_and_else_undone() {
    const FINAL: What = What::Settles { key: 0, token: 7 };
    let wrong = [Rule::WorkFollowsResult];
    assert_eq!(broken(&works(Work::Counts, [DONE, FINAL, OK])), []);
    assert_eq!(broken(&works(Work::Counts, [DONE, OK])), wrong);
    assert_eq!(broken(&works(Work::Counts, [DONE, FINAL, fails(Failure::Lost)])), wrong);
    assert_eq!(broken(&works(Work::Counts, [DONE, fails(Failure::Lost)])), []);
    assert_eq!(broken(&works(Work::Counts, [DONE, FINAL, fails(Failure::CommitUnknown)])), []);
    assert_eq!(broken(&works(Work::Counts, [DONE, FINAL, What::GivenUp])), []);
    assert_eq!(broken(&works(Work::Counts, [DROPPED, FINAL, What::GivenUp])), wrong);
    assert_eq!(broken(&works(Work::Fails, [DONE, FINAL, fails(Failure::Body)])), wrong);
    assert_eq!(broken(&works(Work::Undone, [DONE, FINAL, OK])), wrong);
}
