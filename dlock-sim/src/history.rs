//! A history: what the callers of some processes saw, in the order of time. It knows neither the engine nor a store, so runs on real
//! stores can write it too.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds of a clock that all processes share.
    pub at: u64,
    /// The process.
    pub process: u32,
    /// The call, unique in the whole history; zero for what belongs to none.
    pub call: u32,
    /// The event itself.
    pub what: What,
}

/// An event of a caller, of a process or of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum What {
    /// A call asks for a lock.
    Asks {
        /// The lock.
        key: u32,
        /// The terms of the call.
        terms: Terms,
    },
    /// The body of the call begins.
    Begins {
        /// The fencing token, if it got one.
        token: Option<u64>,
    },
    /// The body acts, and believes that it has the lock until then, by its process's word.
    Acts {
        /// On the shared clock. Not later than the event itself: it acts without a lock.
        until: u64,
    },
    /// The process believes from now on that the body has the lock until then: after a renewal, or a loss.
    Believes {
        /// On the shared clock. Not later than the event itself: it is lost.
        until: u64,
    },
    /// The body has written to the resource of its lock, which takes no write with a lower token than it has seen.
    Writes {
        /// The value that the body had read under its token.
        read: u64,
        /// The value that stands there now.
        wrote: u64,
    },
    /// The body is over.
    Ends(End),
    /// The call has its answer.
    Answers(Result<(), Failure>),
    /// The caller has dropped the call.
    GivenUp,
    /// The process, or the task of the call, stands still until then.
    Stands {
        /// On the shared clock.
        until: u64,
    },
    /// The process shuts down: it takes no new locks, and its bodies may be cut off.
    ShutsDown,
    /// The store has forgotten all locks that it has granted up to this token.
    Forgets {
        /// The highest token that was given.
        token: u64,
    },
    /// From here on nothing goes wrong any more.
    Calm,
    /// At the end something is left that nobody wants.
    Left(String),
    /// For people who read the history.
    Note(String),
}

/// The terms on which a call asks for its lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// How long it waits for the lock, in nanoseconds.
    pub waits: u64,
    /// For how long the store grants the lock at a time, in nanoseconds.
    pub lease: u64,
    /// Whether its body is dropped when the lock is lost.
    pub cancels: bool,
    /// Whether its body has a time limit.
    pub limited: bool,
    /// Whether the caller holds this lock already, so that it must be refused.
    pub inside_itself: bool,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// It came to its end.
    Done,
    /// It was dropped.
    Dropped,
    /// It panicked.
    Panicked,
}

/// Why a call has failed, as far as a checker needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// Somebody else has the lock, and the call does not wait.
    Busy,
    /// Somebody else had the lock for as long as the call waited.
    WaitTimeout,
    /// The store did not answer.
    Outage,
    /// The lock was lost.
    Lost,
    /// The body took too long.
    BodyTimeout,
    /// The call would wait for itself.
    WouldDeadlock,
    /// The process shuts down.
    ShutDown,
    /// A failure that nothing in a history allows.
    Other,
}

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

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, process, call, what } = self;
        write!(f, "{:>14} ", seconds(*at))?;
        match (process, call) {
            (0, 0) => write!(f, "store        ")?,
            (_, 0) => write!(f, "process {process}    ")?,
            _ => write!(f, "process {process} #{call:<2}")?,
        }
        match what {
            What::Acts { until } => write!(f, " acts, and believes until {}", seconds(*until)),
            What::Believes { until } => write!(f, " believes until {}", seconds(*until)),
            What::Stands { until } => write!(f, " stands still until {}", seconds(*until)),
            What::Note(text) => write!(f, " {text}"),
            what => write!(f, " {what:?}"),
        }
    }
}

/// An instant in seconds.
#[must_use]
pub fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}
