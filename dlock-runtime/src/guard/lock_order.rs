//! The order in which locks are taken one inside of the other, watched as the Linux kernel's lockdep does: what can
//! deadlock is seen at its first harmless run, long before two callers meet in it. In debug builds only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::events::observe::{Event, Events};
use crate::guard::scope;
use crate::site::Label;

/// Who was taken while who was held, by backend and template: values do not matter, since two calls may have any.
#[derive(Debug, Default)]
pub(crate) struct Order {
    seen: Mutex<Seen>,
}

type Class = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Seen {
    /// From the held one to the one taken inside, and where that was.
    inside: BTreeMap<Class, BTreeMap<Class, Arc<str>>>,
    told: BTreeSet<(Class, Class)>,
}

impl Order {
    /// Notes that `wanted` is asked for while the enclosing calls hold what they hold.
    pub(crate) fn note(&self, events: &Arc<Events>, wanted: &Label) {
        for held in scope::chain() {
            // One after another in one list of keys: they are sorted, so every caller takes them in one order.
            if held.label.same_place(wanted) && held.sorted {
                continue;
            }
            if let Some(elsewhere) = self.add(&class(&held.label), &class(wanted), wanted) {
                events.tell_now(wanted, Event::OrderCycle { elsewhere });
            }
        }
    }

    /// Where the opposite order is taken, if it is, and if that was not told yet.
    fn add(&self, held: &Class, wanted: &Class, label: &Label) -> Option<Arc<str>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = seen.inside.entry(held.clone()).or_default();
        if inside.contains_key(wanted) {
            return None;
        }
        inside.insert(wanted.clone(), label.place().into());
        let elsewhere = seen.way(wanted, held)?;
        let pair = if held < wanted { (held.clone(), wanted.clone()) } else { (wanted.clone(), held.clone()) };
        seen.told.insert(pair).then_some(elsewhere)
    }
}

impl Seen {
    /// The first step of a way from one class to another, if there is one.
    fn way(&self, from: &Class, to: &Class) -> Option<Arc<str>> {
        let mut reached = BTreeSet::from([from]);
        let mut ends: Vec<(&Class, Option<&Arc<str>>)> = vec![(from, None)];
        while let Some((class, first)) = ends.pop() {
            for (next, place) in self.inside.get(class).into_iter().flatten() {
                let first = first.unwrap_or(place);
                if next == to {
                    return Some(first.clone());
                }
                if reached.insert(next) {
                    ends.push((next, Some(first)));
                }
            }
        }
        None
    }
}

fn class(label: &Label) -> Class {
    (label.backend().into(), label.template().into())
}
