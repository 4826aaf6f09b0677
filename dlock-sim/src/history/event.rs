//! One thing that has happened, in the words of a history.

use std::borrow::Cow;
use std::fmt;

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
    /// A call asks for a lock, or for several together.
    Asks {
        /// The locks.
        keys: Vec<u32>,
        /// The terms of the call.
        terms: Terms,
    },
    /// The body of the call begins.
    Begins {
        /// Its holds, one for each key, in their order.
        holds: Vec<Granted>,
    },
    /// The store has a place for the call in the queue of a lock.
    Queues {
        /// The lock.
        key: u32,
    },
    /// The store gives a lock to the call.
    Grants {
        /// The lock.
        key: u32,
        /// Its token.
        token: u64,
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
    /// The server ends, and starts again after this time.
    Restarts {
        /// In nanoseconds.
        time: u64,
        /// Whether it has lost its memory.
        forgets: bool,
    },
    /// The store has forgotten the locks that it has granted with these tokens, or has ended their sessions before their time. It may
    /// grant them again.
    Forgets {
        /// Of one key, or of all.
        key: Option<u32>,
        /// The lowest token.
        from: u64,
        /// The highest one.
        to: u64,
    },
    /// A process hears that the sessions of these holds have ended.
    EndIsTold {
        /// The key.
        key: u32,
        /// The lowest token.
        from: u64,
        /// The highest one.
        to: u64,
        /// When its bodies must know it.
        by: u64,
    },
    /// The store keeps the key of a hold that has ended.
    Keeps {
        /// The key.
        key: u32,
        /// The token of the hold.
        token: u64,
    },
    /// The store has noted that the run of a period has ended.
    EndsRun {
        /// The key of its hold.
        key: u32,
        /// The token of its hold.
        token: u64,
    },
    /// The work of a body is final.
    Settles {
        /// The key of its hold.
        key: u32,
        /// The token of its hold.
        token: u64,
    },
    /// No request of this history is lost, late or doubled.
    Faultless,
    /// From here on nothing goes wrong any more.
    Calm,
    /// A request of the call, or of its process, on its way.
    Request {
        /// Its number.
        number: u64,
        /// Its name.
        name: Cow<'static, str>,
        /// Where it is.
        step: Step,
    },
    /// At the end something is left that nobody wants.
    Left(String),
    /// For people who read the history.
    Note(String),
}

/// The way of a request and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// It leaves its process.
    Sent,
    /// It is lost.
    Lost,
    /// It is in the store.
    Arrives,
    /// It is in the store, and comes once more.
    ArrivesFirst,
    /// Its answer is lost.
    AnswerLost,
    /// Its answer is in the process.
    Answered,
}

/// One hold of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Granted {
    /// The fencing token, if it got one.
    pub token: Option<u64>,
    /// The number of the permit.
    pub slot: Option<u32>,
}

/// The lock mode of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Share {
    /// Alone.
    Exclusive,
    /// Beside other readers.
    Read,
    /// Alone, and never beside a reader.
    Write,
    /// Beside fewer others than these.
    Permit {
        /// The number of permits.
        of: u32,
    },
}

impl Share {
    /// Whether both may be used under one key.
    #[must_use]
    pub fn mixes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Read | Self::Write, Self::Read | Self::Write) => true,
            (one, other) => one == other,
        }
    }
}

/// The terms on which a call asks for its lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// The lock mode.
    pub share: Share,
    /// Whether it gets its locks in order, compared with other calls that are `fair`.
    pub fair: bool,
    /// How long it waits for the lock, in nanoseconds.
    pub waits: u64,
    /// For how long the store grants the lock at a time, in nanoseconds.
    pub lease: u64,
    /// Whether its hold is renewed.
    pub renewed: bool,
    /// Whether its body is dropped when the lock is lost.
    pub cancels: bool,
    /// Whether its body has a time limit.
    pub limited: bool,
    /// Whether the caller holds this lock already, so that it must be refused.
    pub inside_itself: bool,
    /// The call whose hold it joins, unless that is lost.
    pub joins: Option<u32>,
    /// The longest hold, in nanoseconds.
    pub max_hold: Option<u64>,
    /// For how long its key stays taken after the grant, in nanoseconds.
    pub min_hold: u64,
    /// If it runs at most once in each period.
    pub once_per: Option<Period>,
    /// Whether the store must have confirmed the hold after the body's end, for the call to succeed.
    pub confirms: bool,
    /// The work that its body does inside of its hold, if it does some.
    pub work: Option<Work>,
}

impl Terms {
    /// A call for an exclusive lock, with no other option.
    #[must_use]
    pub const fn plain(waits: u64, lease: u64) -> Self {
        Self {
            share: Share::Exclusive,
            fair: false,
            waits,
            lease,
            renewed: true,
            cancels: true,
            limited: false,
            inside_itself: false,
            joins: None,
            max_hold: None,
            min_hold: 0,
            once_per: None,
            confirms: false,
            work: None,
        }
    }
}

/// A body begins at most once in each period. The boundaries are multiples of its length; a start counts for the nearest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Period {
    /// In nanoseconds.
    pub length: u64,
    /// Whether a run that did not come to its end may be started again.
    pub rerun: bool,
}

impl Period {
    /// The number of the boundary to which an instant of the store's clock belongs.
    #[must_use]
    pub const fn of(self, instant: u64) -> u64 {
        (instant + self.length / 2) / self.length
    }
}

/// Work that the end of a hold makes final, or undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// It is final if the call succeeds, and undone if it fails.
    Counts,
    /// It is undone, whatever the call says.
    Undone,
    /// The body fails, so it is undone, and so does the call.
    Fails,
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
    /// The lock was lost, because it was held for as long as it may be.
    MaxHold,
    /// The body took too long.
    BodyTimeout,
    /// The call would wait for itself.
    WouldDeadlock,
    /// The process shuts down.
    ShutDown,
    /// The key is used for a lock of another kind.
    KeyConflict,
    /// The period's run was started already.
    AlreadyRun,
    /// The body gave an error.
    Body,
    /// Nothing of the body's work stays.
    CommitRefused,
    /// Nobody knows whether the body's work stays.
    CommitUnknown,
    /// A failure that nothing in a history allows.
    Other,
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
            What::Request { number, name, step } => write!(f, " {name} {number}: {step:?}"),
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
