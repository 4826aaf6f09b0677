//! Watches the order in which locks are nested, as the Linux kernel's lockdep does. Two orders that can deadlock are
//! reported at their first harmless run, long before two callers block each other. In debug builds only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use crate::events::event::Event;
use crate::events::observe::Events;
use crate::guard::scope;
use crate::hold::store::Store;
use crate::site::Label;

/// The locks that were taken while others were held, by backend, whatever its names, and template. Values do not matter, because two calls
/// may have any.
#[derive(Debug, Default)]
pub(crate) struct Order {
    seen: Mutex<SeenNestings>,
}

type Class = (usize, Arc<str>);

#[derive(Debug, Default)]
struct SeenNestings {
    /// From the held lock to the locks that were taken inside, and where that was.
    inside: BTreeMap<Class, BTreeMap<Class, Arc<str>>>,
    reported: BTreeSet<(Class, Class)>,
}

impl Order {
    /// Notes that `wanted` is requested while the enclosing calls hold their locks.
    pub(crate) fn note(&self, events: &Arc<Events>, store: &Store, wanted: &Label) {
        for held in scope::chain() {
            // Keys of one list are sorted, so every caller takes them in the same order.
            if held.label.same_call_site(wanted) && held.sorted {
                continue;
            }
            if let Some(elsewhere) = self.add(&class(&held.store, &held.label), &class(store, wanted), wanted) {
                events.tell_now(wanted, Event::OrderCycle { elsewhere });
            }
        }
    }

    /// The place where the opposite order is taken, if there is one that was not reported yet.
    fn add(&self, held: &Class, wanted: &Class, label: &Label) -> Option<Arc<str>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = seen.inside.entry(held.clone()).or_default();
        if inside.contains_key(wanted) {
            return None;
        }
        inside.insert(wanted.clone(), label.place().into());
        let elsewhere = seen.path(wanted, held)?;
        let pair = if held < wanted { (held.clone(), wanted.clone()) } else { (wanted.clone(), held.clone()) };
        seen.reported.insert(pair).then_some(elsewhere)
    }
}

impl SeenNestings {
    /// The place of the first step of a path from one class to another, if there is a path.
    fn path(&self, from: &Class, to: &Class) -> Option<Arc<str>> {
        let mut reached = BTreeSet::from([from]);
        let mut path_ends: Vec<(&Class, Option<&Arc<str>>)> = vec![(from, None)];
        while let Some((class, first)) = path_ends.pop() {
            for (next, place) in self.inside.get(class).into_iter().flatten() {
                let first = first.unwrap_or(place);
                if next == to {
                    return Some(first.clone());
                }
                if reached.insert(next) {
                    path_ends.push((next, Some(first)));
                }
            }
        }
        None
    }
}

fn class(store: &Store, label: &Label) -> Class {
    (store.instance(), label.template().into())
}
