//! The answers of a store: to an attempt, to a renewal, to a release.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::Result;
use crate::hold::{Hold, Validity};
use crate::instant::BootInstant;
use crate::note::Note;

/// Whether a contended attempt may join the wait queue of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// No: it leaves nothing in the store.
    Leave,
    /// Yes: the caller waits.
    Join {
        /// The end of its wait.
        until: BootInstant,
        /// The longest pause before its next attempt, if the caller has set one. It is for a store that can only be
        /// polled and that records its waiters.
        asks_again_within: Option<Duration>,
    },
}

impl Queue {
    /// Joins until this instant, at the store's own pace.
    #[must_use]
    pub const fn until(until: BootInstant) -> Self {
        Self::Join { until, asks_again_within: None }
    }
}

/// The answer to one attempt.
#[derive(Debug)]
pub enum Attempt {
    /// The claim holds the lock.
    Acquired(Hold),
    /// Another owner holds the lock.
    Contended(Wake),
    /// The run of this period was started already; see [`Claim::once_per`](crate::Claim::once_per). The attempt has
    /// left nothing in the store.
    AlreadyRun,
}

/// How a waiter learns that it is worth asking again. It is owned, because it may hold a session or a place. Dropping
/// it frees only what is local. Then the engine calls [`Backend::abandon`](crate::Backend::abandon), unless it took a
/// [`Hold`] out of the wake.
///
/// The engine keeps a wake alive until the next attempt has answered, so no news falls between two wakes. Then it drops
/// the old wake at once, because news must reach the wake that the attempt has returned.
#[non_exhaustive]
pub struct Wake {
    /// Ends when there is news; `None` where the store can only be polled.
    pub signal: Option<BoxFuture<'static, Result<Signal>>>,
    /// The caller asks again by this instant even without news, for instance because the present lease ends. `None` if
    /// the store knows no such instant.
    pub ask_by: Option<BootInstant>,
    /// The rest of the present holder's lease, if the store reports it.
    pub lease_left: Option<Duration>,
    /// The note of the holder, if the store's answer has it.
    pub held_by: Option<Note>,
}

/// The news that a [`Wake`] brings.
#[derive(Debug)]
pub enum Signal {
    /// Worth asking again.
    Ask,
    /// The store has handed the lock over.
    Granted(Hold),
}

impl Wake {
    /// No news will come: the engine asks again at its own pace.
    #[must_use]
    pub fn poll() -> Self {
        Self { signal: None, ask_by: None, lease_left: None, held_by: None }
    }

    /// News will come by `signal`. If it fails with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), the caller
    /// gives up, because it and another call would wait for each other. An error that no retry can mend ends the call too. Any
    /// other failure is no news: it is logged, and the caller polls.
    #[must_use]
    pub fn on(signal: impl Future<Output = Result<Signal>> + Send + 'static) -> Self {
        Self { signal: Some(Box::pin(signal)), ..Self::poll() }
    }

    /// Ask again by `instant` at the latest.
    #[must_use]
    pub fn ask_by(mut self, instant: BootInstant) -> Self {
        self.ask_by = Some(instant);
        self
    }

    /// Sets the rest of the present holder's lease.
    #[must_use]
    pub fn lease_left(mut self, left: Duration) -> Self {
        self.lease_left = Some(left);
        self
    }

    /// Sets the note of the holder.
    #[must_use]
    pub fn held_by(mut self, note: Option<Note>) -> Self {
        self.held_by = note;
        self
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("signal", &self.signal.is_some()).field("ask_by", &self.ask_by).finish()
    }
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The claim still holds the lock, for this validity.
    Renewed(Validity),
    /// The claim does not hold the lock any more.
    Lost,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The claim held the lock. Now it is free, or the next waiter has it.
    Released,
    /// The claim did not hold the lock any more. Nothing was changed.
    NotOwner,
}
