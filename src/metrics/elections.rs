//! The series of elections: whether this process leads, in which term, and how often that began.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use dlock_runtime::{Event, Label};

use super::names::Names;

#[derive(Default)]
pub(super) struct Elections {
    names: Names,
    /// How many candidates of this process lead each election: more than one while one follows another.
    led: Mutex<HashMap<Election, u32>>,
}

/// The names of the election and of the backend.
type Election = (Box<str>, Box<str>);

impl Elections {
    pub(super) fn count(&self, label: &Label, backend: &str, event: &Event) {
        let term = match event {
            Event::Acquired { token, .. } => Some(token.unwrap_or_default()),
            Event::Released { .. } | Event::Lost { .. } | Event::NotSettled { .. } => None,
            _ => return,
        };
        // Elections of this name share it, as `shard:<7>` and `shard:<8>` do: their leaders are not two leaders of one election.
        if label.name().contains('<') {
            return;
        }
        let name = self.names.bounded(label.name());
        let mut leaderships = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        let led = leaderships.entry((name.into(), backend.into())).or_default();
        let labels = vec![
            metrics::Label::new("election", name.to_owned()),
            metrics::Label::new("backend", backend.to_owned()),
            metrics::Label::from_static_parts("store", label.store()),
        ];
        // Two candidates of one process may follow each other, and the end of the first may be reported last.
        match term {
            Some(_) => *led += 1,
            None => *led = led.saturating_sub(1),
        }
        metrics::gauge!("dlock_leader", labels.clone()).set(f64::from(*led));
        if let Some(term) = term {
            metrics::counter!("dlock_leader_changes_total", labels.clone()).increment(1);
            metrics::gauge!("dlock_leader_term", labels).set(term as f64);
        } else if *led == 0 {
            metrics::gauge!("dlock_leader_term", labels).set(0.0);
        }
    }
}
