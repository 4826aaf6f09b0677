//! The history of the locks as processes have seen it, and the check of that history.
//!
//! A process appends a line for every moment at which it was certain to hold: it reads the clock, asks its guard, and
//! writes the time down only if the guard then said yes. Lines are written at once, so `kill -9` loses none.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use dlock::Guard;
use libtest_mimic::Trial;

use crate::arena::now;

/// One grant, and the time for which its process was certain of it, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    key: String,
    token: u64,
    from: u64,
    to: u64,
}

/// The file of one process.
pub(crate) struct Record(File);

impl Record {
    pub(crate) fn append_to(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    /// Notes that the guard holds, if it does.
    pub(crate) fn note(&mut self, key: &str, guard: &Guard, since: u64) -> bool {
        let now = now().as_nanos();
        if guard.check().is_err() {
            return false;
        }
        let token = guard.fence().unwrap().get();
        self.0.write_all(format!("{key} {token} {since} {now}\n").as_bytes()).unwrap();
        true
    }
}

/// All grants in a folder of records.
pub(crate) fn read(folder: &Path) -> Vec<Hold> {
    let mut holds = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // A line that a kill cut short does not count.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let mut words = line.split(' ');
            let key = words.next().unwrap().to_owned();
            let [token, from, to] = [(); 3].map(|()| words.next().unwrap().parse().unwrap());
            // Later lines of the same grant tell more.
            holds.insert((path.clone(), key.clone(), from), Hold { key, token, from, to });
        }
    }
    holds.into_values().collect()
}

/// Every way in which the grants contradict what locks promise; empty if they do not.
pub(crate) fn contradictions(holds: &[Hold]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_key: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        by_key.entry(&hold.key).or_default().push(hold);
    }
    for holds in by_key.values_mut() {
        holds.sort_by_key(|hold| hold.from);
        let mut tokens = HashSet::new();
        let mut before: Option<&Hold> = None;
        for &hold in holds.iter() {
            if !tokens.insert(hold.token) {
                wrong.push(format!("a token was given twice: {hold:?}"));
            }
            if let Some(before) = before {
                if hold.from < before.to {
                    wrong.push(format!("two held at once: {before:?} and {hold:?}"));
                }
                if hold.token < before.token {
                    wrong.push(format!("a later grant has a lower token: {before:?} and {hold:?}"));
                }
            }
            if before.is_none_or(|before| before.to < hold.to) {
                before = Some(hold);
            }
        }
    }
    wrong
}

/// The checker itself: a history that was made wrong must be found wrong, and a right one right.
pub(crate) fn trials() -> Vec<Trial> {
    let hold = |key: &str, token, from, to| Hold { key: key.to_owned(), token, from, to };
    let right = vec![hold("a", 1, 0, 10), hold("a", 2, 10, 20), hold("b", 1, 5, 15), hold("a", 7, 30, 30)];
    let with = |more| [right.as_slice(), &[more]].concat();
    [
        ("accepts_what_is_right", right.clone(), None),
        ("finds_two_holders", with(hold("a", 3, 19, 25)), Some("two held at once")),
        ("finds_a_holder_inside_of_another_hold", with(hold("b", 3, 6, 7)), Some("two held at once")),
        ("finds_a_token_given_twice", with(hold("a", 7, 40, 50)), Some("given twice")),
        ("finds_a_token_that_falls", with(hold("a", 5, 40, 50)), Some("lower token")),
    ]
    .map(|(name, holds, wanted)| {
        Trial::test(format!("checker::{name}"), move || {
            let wrong = contradictions(&holds);
            match wanted {
                None => assert!(wrong.is_empty(), "{wrong:?}"),
                Some(words) => assert!(wrong.iter().any(|text| text.contains(words)), "{wrong:?}"),
            }
            Ok(())
        })
    })
    .into()
}
