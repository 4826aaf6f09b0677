//! At most one start in each period.

use std::time::Duration;

/// At most one start in each period, in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OncePer {
    /// The length of a period. A start belongs to the nearest boundary: those of 11:59:58 and 12:00:02 are one of `1h`.
    pub period: Duration,
    /// By how much the boundaries come after those that are counted from 1970 in UTC; less than the period. They belong
    /// near the times at which the task fires: with a period of a day and no offset, noon lies exactly between two, and
    /// two nodes whose clocks differ by a second would start it twice.
    pub offset: Duration,
    /// Whether a run that did not come to its end is started again in its period. If its process died, that is once its
    /// lease has ended; if it was cancelled or its guard dropped, at once. One that gave an error, ran out of time or
    /// panicked has failed, and is not started again.
    ///
    /// With it, a run that goes on is contention: a waiter takes over if it dies, and gets
    /// [`AlreadyRun`](crate::ErrorKind::AlreadyRun) when it has ended. Without it, every other caller gets that at
    /// once.
    pub rerun: bool,
}

impl OncePer {
    /// Once in each period of this length, with boundaries that are counted from 1970, and never run again.
    #[must_use]
    pub const fn new(period: Duration) -> Self {
        Self { period, offset: Duration::ZERO, rerun: false }
    }

    /// Shifts the boundaries by this time; see the field [`offset`](Self::offset).
    #[must_use]
    pub const fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }

    /// Whether a run that did not come to its end is started again.
    #[must_use]
    pub const fn rerun(mut self, rerun: bool) -> Self {
        self.rerun = rerun;
        self
    }
}
