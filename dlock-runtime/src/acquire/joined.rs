//! A nested call with `reentrant` joins the hold of the enclosing call. That hold keeps its own options.

use std::sync::Arc;

use crate::events::event::Event;
use crate::hold::tenure::Tenure;
use crate::options::Options;
use crate::options::lock_options::Resolved;
use crate::site::Label;

/// Tells which options of the nested call have no effect, because the hold has other values. Defaults are no options of the
/// call. Options of waiting have no effect either, but a call that joins does not wait.
pub(crate) fn tell_ignored(label: &Label, given: &Options, resolved: &Resolved, outer: &Tenure) {
    let ignored = [
        ("ttl", given.ttl.is_some_and(|ttl| ttl != outer.hold.claim.ttl)),
        ("renew", given.renew.is_some() && resolved.cadence != outer.cadence()),
        ("max_hold", given.max_hold.is_some_and(|longest| outer.since.after(longest) != outer.max_hold_ends)),
        ("mode", given.mode != outer.hold.claim.mode),
        ("fair", given.fair && !outer.hold.claim.fair),
    ];
    let options: Vec<_> = ignored.into_iter().filter_map(|(name, is_ignored)| is_ignored.then_some(name)).collect();
    if !options.is_empty() {
        let event =
            Event::OptionsIgnored { options: options.join(", ").into(), holder: Arc::from(outer.label.place()) };
        outer.shared.events.tell(label, &event);
    }
}
