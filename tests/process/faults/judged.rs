//! The judge itself: what a kill and a store that forgets excuse, and nothing else.

use dlock_sim::{End, Event, Granted, Rule, Terms, What};
use libtest_mimic::Trial;

use super::judge;
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

pub(crate) fn trials() -> Vec<Trial> {
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
        trial("two_holds_at_once_are_wrong", None, true, 0),
        trial("a_hold_ends_with_its_process", Some(Line::Killed { at: 3 * S, process: 1 }), false, 0),
        trial("a_hold_that_the_store_forgets_is_documented", forgets(Some(0)), false, 1),
        trial("a_store_that_forgets_all_forgets_this_one", forgets(None), false, 1),
        trial("a_hold_of_another_lock_excuses_nothing", forgets(Some(1)), true, 0),
        trial("a_hold_that_ends_with_a_connection_is_documented", loses(1), false, 1),
        trial("a_connection_of_another_process_excuses_nothing", loses(2), true, 0),
    ]
}
