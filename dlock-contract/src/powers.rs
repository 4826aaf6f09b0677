//! Powers: the abilities of a store beyond plain locks. Each power is a trait that an instance offers or does not
//! offer, by an accessor of [`Backend`](crate::Backend). No flag repeats it, so no flag can contradict it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;

use crate::answer::{Attempt, Released};
use crate::claim::Claim;
use crate::clock::instant::BootInstant;
use crate::error::Result;
use crate::hold::{Hold, Validity};
use crate::key::LockKey;
use crate::note::Note;

/// Ends a hold and keeps its key taken for some time, by the store's clock: the option `min_hold`.
pub trait Keeps: Send + Sync {
    /// Ends the hold, and keeps the key taken for this time. Of a shared mode, the hold's share stays taken: a reader's
    /// keeps writers away, a permit's its slot. [`Backend::look`](crate::Backend::look) still shows it, and the first
    /// waiter gets the lock when the time is over.
    ///
    /// Its owner has nothing left in any case: a renewal is [`Standing::Lost`](crate::Standing::Lost), a second end or a
    /// release [`Released::NotOwner`], and an abandon changes nothing.
    ///
    /// `run` is recorded in the same atomic step, as [`Periods::end_run`] does it; only a store that offers both powers is
    /// asked for both. Two requests would leave a window in which a crash loses one of them.
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>>;
}

/// Knows its time, and remembers the runs of a key: the option `once_per`, and the last success of a task.
pub trait Periods: Send + Sync {
    /// Frees the lock as [`Backend::release`](crate::Backend::release) does, and records how its run went. Only of
    /// [`Mode::Exclusive`](crate::Mode::Exclusive).
    ///
    /// A success becomes the [last one](Self::last_success). With [`Claim::once_per`] the period's run has ended: it is not
    /// started again, however it went. Without it no run of a period was started, and none has ended.
    fn end_run<'a>(&'a self, hold: &'a Hold, run: RunEnd) -> BoxFuture<'a, Result<Released>>;

    /// The last run under this key whose end was a success; kept for good.
    fn last_success<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<LastSuccess>>>;
}

/// Reserves fencing tokens for a hold: the option `cohort`.
pub trait Tokens: Send + Sync {
    /// Prolongs a hold as [`Backend::renew`](crate::Backend::renew) does, and reserves fencing tokens for it: the engine
    /// passes the hold on to callers of this process, one after another, without asking the store.
    ///
    /// The tokens are consecutive, above all that the key has had, and below that of every later grant.
    fn reserve<'a>(&'a self, hold: &'a Hold, asked: Reservation) -> BoxFuture<'a, Result<Reserved>>;
}

/// Frees a lock and asks for it in one request. Callers of one process then take their places in the store's line as the
/// one before them leaves. It counts only beside [`WakeStyle::Grant`](crate::WakeStyle::Grant).
pub trait Exchange: Send + Sync {
    /// Frees the lock as [`Backend::release`](crate::Backend::release) does, and asks for it for the next caller of this
    /// process in the same request, as [`Backend::try_acquire`](crate::Backend::try_acquire) does with [`Queue::until`](crate::Queue::until) then.
    ///
    /// A store may give the lock to the next caller although others wait for it, at most 16 times in a row: then they come.
    ///
    /// `None` in the place of the answer: the lock was not asked for, and nothing of `next` is in the store. An error
    /// means that nothing is known of either. A [`Wake`](crate::Wake) in the answer is awaited by another task, on
    /// whatever executor.
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>>;
}

/// Grants several locks in one step, all or none.
pub trait Batch: Send + Sync {
    /// Asks once for several locks, all or none.
    ///
    /// The claims are plain (exclusive, neither [`fair`](Claim::fair) nor [`once_per`](Claim::once_per)), of different
    /// keys, and each has an owner of its own, and no owner has a place in a wait queue. Where every lock is free and
    /// nobody waits for it, all are granted in one step; a lock that is its claim's own already counts as free, and is
    /// granted as [`Backend::try_acquire`](crate::Backend::try_acquire) grants it again. Else nothing changes, and the
    /// core asks for one after another.
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>>;

    /// Whether it takes keys of any names together. The engine then gives them back together too: it asks in reverse, and
    /// waits for all answers at once. False in a cluster, where it depends on the slots of the keys.
    fn takes_any_keys(&self) -> bool {
        true
    }
}

/// Ends the work that a body did inside of its own hold, such as in a transaction that is the hold. It is for stores where the
/// end of the hold decides what becomes of that work, and so decides the result of the call.
pub trait Settle: Send + Sync {
    /// Whether the body has used the hold for work of its own. Known without a request. Without such work there is nothing
    /// to settle, and a release is enough.
    fn has_work(&self, hold: &Hold) -> bool;

    /// Makes the body's work final. It is asked once, after a body that has succeeded and before the release, which follows in
    /// any case. A release without it undoes the work, and so does the end of the hold by whatever way.
    ///
    /// A request that was begun runs to its end, also if this future is dropped: the release then comes after it.
    ///
    /// # Errors
    /// [`ErrorKind::CommitRefused`](crate::ErrorKind::CommitRefused) if nothing of the work stays, also because the hold had ended
    /// before; [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown) if nobody knows whether it stays. The engine takes
    /// every other error for the latter.
    fn settle<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<()>>;
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It gave an error, ran out of its time, or panicked.
    Failed,
    /// It came to its end.
    Succeeded {
        /// For how long it ran.
        took: Duration,
    },
}

/// The last run that succeeded, of a lock with `once_per` or of a scheduled task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastSuccess {
    /// When its lock was granted, by the store's wall clock; without `once_per`, a store may count back from its end.
    pub started: SystemTime,
    /// For how long it ran.
    pub took: Duration,
    /// Where it ran.
    pub note: Note,
}

impl LastSuccess {
    /// A run with this start, length and note.
    #[must_use]
    pub const fn new(started: SystemTime, took: Duration, note: Note) -> Self {
        Self { started, took, note }
    }
}

/// The request to reserve tokens for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reservation {
    /// The number of tokens.
    pub tokens: u32,
    /// Whether to reserve also while others wait for the lock, as far as the store knows.
    pub even_if_awaited: bool,
}

impl Reservation {
    /// This many tokens, if nobody else waits for the lock.
    #[must_use]
    pub const fn new(tokens: u32) -> Self {
        Self { tokens, even_if_awaited: false }
    }

    /// Also while others wait for the lock.
    #[must_use]
    pub const fn even_if_awaited(mut self, yes: bool) -> Self {
        self.even_if_awaited = yes;
        self
    }
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The hold is prolonged, and the tokens are reserved for it.
    Tokens {
        /// The lowest.
        first: u64,
        /// The validity, as after a renewal.
        validity: Validity,
    },
    /// Others wait, and nothing has changed.
    Awaited,
    /// The claim does not hold the lock any more.
    Lost,
}

/// The answer to one attempt for several locks.
#[derive(Debug)]
pub enum Together {
    /// All of them are granted: a hold for each claim, in their order.
    Acquired(Vec<Hold>),
    /// Another owner holds one of them, or waits for it. Nothing has changed.
    Contended,
    /// Nothing was asked: these locks cannot be taken in one step, or others were seen at one of them just now.
    OneByOne,
}
