//! The judge itself: what a kill and a store that forgets excuse, and nothing else. And the leaks that a soak shows.

use dlock_sim::{End, Event, Granted, Rule, Terms, What};
use libtest_mimic::Trial;

use super::weight::WITNESS;
use super::{Growth, Weight, judge, new_folder};
use crate::record::Line;

const S: u64 = 1_000_000_000;

/// Two holds of one lock, the second one before the belief in the first one ends.
fn two_holds(between: Option<Line>) -> Vec<Line> {
    let saw = |at, call, what| Line::Saw(Event { at: at * S, process: call, call, what });
    let terms = Terms::plain(5 * S, 10 * S);
    let begins = |at, call: u32| {
        let asks = What::Asks { keys: vec![0], terms: terms.clone() };
        let begins = What::Begins { holds: vec![Granted { token: Some(call.into()), slot: None }] };
        [asks, begins, What::Acts { until: (at + 9) * S }].map(|what| saw(at, call, what))
    };
    let ends = |at, call| [What::Ends(End::Done), What::Answers(Ok(()))].map(|what| saw(at, call, what));
    let mut lines = [begins(1, 1), begins(4, 2)].concat();
    // A process that is killed says nothing more.
    if !matches!(between, Some(Line::Killed { .. })) {
        lines.extend(ends(6, 1));
    }
    lines.extend(ends(8, 2));
    lines.extend(between);
    lines.sort_by_key(Line::at);
    lines
}

/// A soak with a weight every ten seconds. `grows` changes a weight by its hours since the start.
fn soak(minutes: u64, grows: fn(&mut Weight, f64)) -> Vec<String> {
    let (first, last, end) = (20 * S, (minutes * 60 - 20) * S, minutes * 60 * S);
    let weighs = |at: u64| {
        let mut weight = Weight { kib: 20_000, threads: 4, descriptors: 20, tasks: 12 };
        grows(&mut weight, at as f64 / (3600 * S) as f64);
        Line::Weighs { at, process: WITNESS, weight }
    };
    let mut lines: Vec<_> = (0..end).step_by(10 * S as usize).map(weighs).collect();
    let text = String::new();
    let ends = Line::Saw(Event { at: end, process: WITNESS, call: 1, what: What::Ends(End::Done) });
    lines.extend([Line::Fault { at: first, text: text.clone() }, Line::Over { at: last, text }, ends]);
    lines.sort_by_key(Line::at);
    Growth::of(&lines).unwrap().leaks()
}

fn a_soak_fails_if_something_grows() {
    assert_eq!(soak(60, |_, _| {}), [""; 0]);
    // A megabyte in an hour is allowed, and some threads begin late.
    assert_eq!(soak(60, |weight, hours| weight.kib += (1000.0 * hours) as u64), [""; 0]);
    assert_eq!(soak(60, |weight, hours| weight.threads += u64::from(hours > 0.1) * 3), [""; 0]);
    let growing: [fn(&mut Weight, f64); 4] = [
        |weight, hours| weight.kib += (1100.0 * hours) as u64,
        |weight, hours| weight.tasks += u64::from(hours > 0.9),
        |weight, hours| weight.threads += u64::from(hours > 0.9) * 4,
        |weight, hours| weight.descriptors += u64::from(hours > 0.9),
    ];
    for grows in growing {
        let leaks = soak(60, grows);
        assert_eq!(leaks.len(), 1, "{leaks:?}");
        assert_eq!(soak(20, grows), [""; 0], "a short run says nothing");
    }
}

fn a_run_again_keeps_the_history_of_the_first_run() {
    let parent = tempfile::tempdir().unwrap();
    for expected in ["redis-7", "redis-7-2", "redis-7-3"] {
        let folder = new_folder(parent.path(), "redis-7");
        assert_eq!(folder, parent.path().join(expected));
        std::fs::create_dir(&folder).unwrap();
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let plain = |name: &str, trial: fn()| {
        Trial::test(format!("checker::{name}"), move || {
            trial();
            Ok(())
        })
    };
    let trial = |name: &str, between: Option<Line>, is_wrong: bool, documented: usize| {
        Trial::test(format!("checker::{name}"), move || {
            let verdict = judge(&two_holds(between));
            assert_eq!(verdict.breaks(Rule::OneBeliever), is_wrong, "{:?}", verdict.broken);
            assert_eq!((verdict.broken.len(), verdict.documented), (usize::from(is_wrong), documented));
            Ok(())
        })
    };
    let forgets = |key| Some(Line::Forgets { at: 3 * S, key, process: None });
    let loses = |process| Some(Line::Forgets { at: 3 * S, key: None, process: Some(process) });
    vec![
        plain("a_soak_fails_if_something_grows", a_soak_fails_if_something_grows),
        plain("a_run_again_keeps_the_history_of_the_first_run", a_run_again_keeps_the_history_of_the_first_run),
        trial("two_holds_at_once_are_wrong", None, true, 0),
        trial("a_hold_ends_with_its_process", Some(Line::Killed { at: 3 * S, process: 1 }), false, 0),
        trial("a_hold_that_the_store_forgets_is_documented", forgets(Some(0)), false, 1),
        trial("a_store_that_forgets_all_forgets_this_one", forgets(None), false, 1),
        trial("a_hold_of_another_lock_excuses_nothing", forgets(Some(1)), true, 0),
        trial("a_hold_that_ends_with_a_connection_is_documented", loses(1), false, 1),
        trial("a_connection_of_another_process_excuses_nothing", loses(2), true, 0),
    ]
}
