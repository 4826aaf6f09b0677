//! The checker catches wrong histories. Each is a right one with one change.

mod periods;
mod sessions;
mod sharing;
mod waiting;

use dlock_sim::{End, Event, Failure, Granted, History, Rule, Terms, What, check};

const S: u64 = 1_000_000_000;

const TERMS: Terms = Terms::plain(5 * S, 10 * S);

/// A history by its events: the time in seconds, the process, the call, and what happened.
fn history<const N: usize>(events: [(u64, u32, u32, What); N]) -> History {
    let mut history = History::default();
    for (seconds, process, call, what) in events {
        history.add(seconds * S, process, call, what);
    }
    history
}

fn broken(history: &History) -> Vec<Rule> {
    check(history).iter().map(|violation| violation.rule).collect()
}

fn asks(terms: &Terms) -> What {
    What::Asks { keys: vec![0], terms: terms.clone() }
}

fn begins(token: u64) -> What {
    What::Begins { holds: vec![Granted { token: Some(token), slot: None }] }
}

const fn acts(until: u64) -> What {
    What::Acts { until: until * S }
}

const fn believes(until: u64) -> What {
    What::Believes { until: until * S }
}

const DONE: What = What::Ends(End::Done);
const DROPPED: What = What::Ends(End::Dropped);
const OK: What = What::Answers(Ok(()));

const fn fails(why: Failure) -> What {
    What::Answers(Err(why))
}

/// One call after another.
fn two_calls(second: u64, token: u64) -> History {
    history([
        (1, 1, 1, asks(&TERMS)),
        (2, 1, 1, begins(7)),
        (2, 1, 1, acts(12)),
        (second, 2, 2, asks(&TERMS)),
        (second, 2, 2, begins(token)),
        (second, 2, 2, acts(second + 10)),
        (6, 1, 1, DONE),
        (6, 1, 1, OK),
        (9, 2, 2, DONE),
        (9, 2, 2, OK),
    ])
}

#[test]
fn two_bodies_believe_at_one_moment() {
    assert_eq!(broken(&two_calls(4, 8)), [Rule::OneBeliever]);
    assert_eq!(broken(&two_calls(6, 8)), []);
}

#[test]
fn a_fenced_write_overwrites_one_that_its_body_had_not_read() {
    let writes = |read| {
        let mut history = two_calls(6, 8);
        history.events.insert(7, Event { at: 6 * S, process: 1, call: 1, what: What::Writes { read: 0, wrote: 1 } });
        history.add(8 * S, 2, 2, What::Writes { read, wrote: read + 1 });
        broken(&history)
    };
    assert_eq!(writes(0), [Rule::FencedWrites]);
    assert_eq!(writes(1), []);
}

#[test]
fn a_process_that_gives_its_belief_up_while_a_body_runs_on_does_not_give_the_lock_away() {
    let runs_on = Terms { cancels: false, ..TERMS };
    let shut_down = |second| {
        history([
            (1, 1, 1, asks(&runs_on)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (3, 1, 0, What::ShutsDown),
            (3, 1, 1, believes(3)),
            (second, 2, 2, asks(&TERMS)),
            (second, 2, 2, begins(8)),
            (second, 2, 2, acts(second + 10)),
            (13, 1, 1, DONE),
            (13, 1, 1, fails(Failure::Lost)),
            (14, 2, 2, DONE),
            (14, 2, 2, OK),
        ])
    };
    assert_eq!(broken(&shut_down(5)), [Rule::OneBeliever]);
    assert_eq!(broken(&shut_down(12)), []);
}

#[test]
fn what_the_store_forgets_may_be_granted_again_but_not_what_it_prolongs_after_that() {
    let forgets = |renewed: u64| {
        history([
            (1, 1, 1, asks(&TERMS)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (3, 0, 0, What::Forgets { key: None, from: 0, to: 7 }),
            (4, 1, 1, believes(renewed)),
            (5, 2, 2, asks(&TERMS)),
            (5, 2, 2, begins(8)),
            (5, 2, 2, acts(15)),
            (6, 1, 1, DONE),
            (6, 1, 1, OK),
            (9, 2, 2, DONE),
            (9, 2, 2, OK),
        ])
    };
    assert_eq!(broken(&forgets(14)), [Rule::OneBeliever]);
    assert_eq!(broken(&forgets(13)), []);
}

#[test]
fn a_token_does_not_rise() {
    assert_eq!(broken(&two_calls(6, 7)), [Rule::TokensRise]);
    assert_eq!(broken(&two_calls(6, 6)), [Rule::TokensRise]);
}

/// One call whose body acts a second time, at an instant and with a belief.
fn acts_again(terms: &Terms, at: u64, until: u64) -> History {
    let end = if terms.cancels { DROPPED } else { DONE };
    history([
        (1, 1, 1, asks(terms)),
        (2, 1, 1, begins(7)),
        (2, 1, 1, acts(12)),
        (at, 1, 1, acts(until)),
        (at, 1, 1, end),
        (at, 1, 1, fails(Failure::Lost)),
    ])
}

#[test]
fn a_body_acts_without_its_lock() {
    assert_eq!(broken(&acts_again(&TERMS, 12, 12)), [Rule::ActsWithoutLock]);
    assert_eq!(broken(&acts_again(&TERMS, 11, 12)), []);
    // It was told to go on. But it must not begin.
    let runs_on = Terms { cancels: false, ..TERMS };
    assert_eq!(broken(&acts_again(&runs_on, 12, 12)), []);
    let begins_late = history([
        (1, 1, 1, asks(&runs_on)),
        (12, 1, 1, begins(7)),
        (12, 1, 1, acts(12)),
        (12, 1, 1, DONE),
        (12, 1, 1, fails(Failure::Lost)),
    ]);
    assert_eq!(broken(&begins_late), [Rule::ActsWithoutLock]);
}

#[test]
fn a_loss_is_told_late() {
    let dropped = |at, stands: u64| {
        history([
            (1, 1, 1, asks(&TERMS)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (11, 1, 0, What::Stands { until: stands * S }),
            (at, 1, 1, DROPPED),
            (at, 1, 1, fails(Failure::Lost)),
        ])
    };
    assert_eq!(broken(&dropped(13, 11)), [Rule::LossIsTold]);
    assert_eq!(broken(&dropped(12, 11)), []);
    // A process that stands still hears of it when it goes on.
    assert_eq!(broken(&dropped(20, 20)), []);
    assert_eq!(broken(&dropped(21, 20)), [Rule::LossIsTold]);
}

#[test]
fn a_call_succeeds_although_its_lock_was_lost() {
    let answered = |at, answer| {
        history([
            (1, 1, 1, asks(&TERMS)),
            (2, 1, 1, begins(7)),
            (2, 1, 1, acts(12)),
            (2, 1, 0, What::Stands { until: at * S }),
            (at, 1, 1, DONE),
            (at, 1, 1, answer),
        ])
    };
    assert_eq!(broken(&answered(13, OK)), [Rule::OkIsCovered]);
    assert_eq!(broken(&answered(13, fails(Failure::Lost))), []);
    assert_eq!(broken(&answered(12, OK)), []);
    let without_body = history([(1, 1, 1, asks(&TERMS)), (2, 1, 1, OK)]);
    assert_eq!(broken(&without_body), [Rule::OkIsCovered]);
}

#[test]
fn a_call_hangs() {
    let waits = |at| history([(1, 1, 1, asks(&TERMS)), (at, 1, 1, fails(Failure::WaitTimeout))]);
    assert_eq!(broken(&waits(30)), [Rule::NoHang]);
    assert_eq!(broken(&waits(7)), []);
    let for_ever = history([(1, 1, 1, asks(&TERMS)), (2, 1, 1, begins(7)), (2, 1, 1, acts(12)), (6, 1, 1, DONE)]);
    assert_eq!(broken(&for_ever), [Rule::NoHang]);
    let release = |at| {
        history([(1, 1, 1, asks(&TERMS)), (2, 1, 1, begins(7)), (2, 1, 1, acts(12)), (6, 1, 1, DONE), (at, 1, 1, OK)])
    };
    assert_eq!(broken(&release(30)), [Rule::NoHang]);
    assert_eq!(broken(&release(9)), []);
}

#[test]
fn a_call_fails_in_a_way_that_nothing_allows() {
    let answer = |terms: Terms, at, why| history([(1, 1, 1, asks(&terms)), (at, 1, 1, fails(why))]);
    let no_wait = Terms { waits: 0, ..TERMS };
    for (terms, at, why) in [
        (TERMS, 2, Failure::Busy),
        (TERMS, 2, Failure::WaitTimeout),
        (no_wait.clone(), 2, Failure::WaitTimeout),
        (TERMS, 2, Failure::BodyTimeout),
        (TERMS, 2, Failure::WouldDeadlock),
        (TERMS, 2, Failure::ShutDown),
        (TERMS, 2, Failure::Other),
    ] {
        assert_eq!(broken(&answer(terms, at, why)), [Rule::ErrorKind], "{why:?}");
    }
    let inside = Terms { inside_itself: true, ..TERMS };
    for (terms, at, why) in [
        (no_wait, 2, Failure::Busy),
        (TERMS, 6, Failure::WaitTimeout),
        (TERMS, 2, Failure::Outage),
        (inside, 1, Failure::WouldDeadlock),
    ] {
        assert_eq!(broken(&answer(terms, at, why)), [], "{why:?}");
    }
}

/// A call of a history in which no request is lost, and one thing that happens meanwhile.
fn without_faults(terms: &Terms, meanwhile: What, process: u32, end: Vec<What>) -> Vec<Rule> {
    let mut history = history([(1, 0, 0, What::Faultless), (1, 1, 1, asks(terms)), (2, process, 0, meanwhile)]);
    end.into_iter().for_each(|what| history.add(3 * S, 1, 1, what));
    broken(&history)
}

#[test]
fn a_call_fails_although_nothing_goes_wrong() {
    let nothing = || What::Note(String::new());
    let outage = || vec![fails(Failure::Outage)];
    let lost = || vec![begins(7), acts(12), DROPPED, fails(Failure::Lost)];
    for end in [outage(), lost()] {
        assert_eq!(without_faults(&TERMS, nothing(), 0, end.clone()), [Rule::ErrorKind]);
        // The process of another call.
        assert_eq!(without_faults(&TERMS, What::ShutsDown, 2, end.clone()), [Rule::ErrorKind]);
        assert_eq!(without_faults(&TERMS, What::ShutsDown, 1, end.clone()), []);
        assert_eq!(without_faults(&TERMS, What::Stands { until: 3 * S }, 1, end.clone()), []);
        assert_eq!(without_faults(&TERMS, What::Restarts { time: S, forgets: false }, 0, end), []);
    }
    let is_not_renewed = Terms { renewed: false, ..TERMS };
    assert_eq!(without_faults(&is_not_renewed, nothing(), 0, lost()), []);
    assert_eq!(without_faults(&is_not_renewed, nothing(), 0, outage()), [Rule::ErrorKind]);
    let is_short = Terms { lease: S / 2, ..TERMS };
    assert_eq!(without_faults(&is_short, nothing(), 0, lost()), []);
    let forgets = |token| What::Forgets { key: Some(0), from: token, to: token };
    assert_eq!(without_faults(&TERMS, forgets(7), 0, lost()), []);
    assert_eq!(without_faults(&TERMS, forgets(6), 0, lost()), [Rule::ErrorKind]);
}

#[test]
fn something_is_left() {
    let left =
        history([(1, 1, 1, asks(&TERMS)), (2, 1, 1, fails(Failure::Outage)), (9, 0, 0, What::Left("a lock".into()))]);
    assert_eq!(broken(&left), [Rule::NothingIsLeft]);
}
