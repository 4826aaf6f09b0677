//! A history: what the callers of some processes saw, in the order of time. It knows neither the engine nor a store, so runs on real
//! stores can write it too.

mod event;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

pub use event::{End, Event, Failure, Granted, Period, Share, Step, Terms, What, Work, seconds};

/// The events, in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The events.
    pub events: Vec<Event>,
}

impl History {
    /// Appends one event.
    pub fn add(&mut self, at: u64, process: u32, call: u32, what: What) {
        self.events.push(Event { at, process, call, what });
    }

    /// A number that two histories share only if they are the same.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.events.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}
