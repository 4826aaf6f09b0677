//! Powers: the abilities of a store beyond plain locks. Each power is a trait that an instance offers or does not
//! offer, by an accessor of [`Backend`](crate::Backend). No flag repeats it, so no flag can contradict it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;

use crate::answer::{Attempt, Released};
use crate::claim::Claim;
use crate::error::Result;
use crate::hold::{Hold, Validity};
use crate::instant::BootInstant;
use crate::key::LockKey;
use crate::note::Note;

/// Ends a hold and keeps its key taken for some time, by the store's clock: the option `min_hold`.
pub trait Keeps: Send + Sync {
    /// Ends the hold, and keeps the key taken for this time. In a shared mode only the hold's share stays taken: a
    /// reader's share keeps writers away, and a permit keeps its slot. [`Backend::look`](crate::Backend::look) still
    /// shows it, and the first waiter gets the lock when the time is over.
    ///
    /// In any case the owner has no hold any more. A renewal returns [`Standing::Lost`](crate::Standing::Lost), a
    /// second end or a release returns [`Released::NotOwner`], and an abandon changes nothing.
    ///
    /// `run` is recorded in the same atomic step, as [`Periods::end_run`] does it; only a store that offers both powers is
    /// asked for both. Two requests would leave a window in which a crash loses one of them.
    fn keep<'a>(&'a self, hold: &'a Hold, time: Duration, run: Option<RunEnd>) -> BoxFuture<'a, Result<Released>>;
}

/// Knows its time, and remembers the runs of a key: the option `once_per`, and the last success of a task.
pub trait Periods: Send + Sync {
    /// Frees the lock as [`Backend::release`](crate::Backend::release) does, and records how its run went. Only for
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

/// Frees a lock and asks for it in one request. So the next caller of a process takes its place in the store's wait
/// queue as the caller before it leaves. It counts only beside [`WakeStyle::Grant`](crate::WakeStyle::Grant).
pub trait Exchange: Send + Sync {
    /// Frees the lock as [`Backend::release`](crate::Backend::release) does, and asks for it for the next caller of
    /// this process in the same request, as [`Backend::try_acquire`](crate::Backend::try_acquire) does with
    /// [`Queue::until`](crate::Queue::until).
    ///
    /// While others wait for the lock, a store may give it to the next caller at most 16 times in a row. Then the
    /// others come first.
    ///
    /// The attempt is `None` if the lock was not asked for. Then nothing of `next` is in the store. After an error,
    /// both outcomes are unknown. A [`Wake`](crate::Wake) in the answer is awaited by another task, on any executor.
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
    /// The claims are plain (exclusive, neither [`fair`](Claim::fair) nor [`once_per`](Claim::once_per)) and of
    /// different keys. Each has its own owner, and no owner has a place in a wait queue. If every lock is free and
    /// nobody waits for it, all are granted in one step. A lock that its claim already has counts as free, and is
    /// granted as [`Backend::try_acquire`](crate::Backend::try_acquire) grants it again. Otherwise nothing changes, and
    /// the engine asks for one lock after another.
    fn try_acquire_all<'a>(&'a self, claims: &'a [Arc<Claim>]) -> BoxFuture<'a, Result<Together>>;

    /// Whether it takes keys of any names together. Then the engine also releases them together: it sends the releases
    /// in reverse order, and waits for all answers at once. False in a cluster, where the slots of the keys decide.
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

    /// Makes the body's work final. It is asked once, after a body that has succeeded and before the release, which
    /// follows in any case. A release without it undoes the work, and so does any other end of the hold.
    ///
    /// A request that was begun runs to its end, also if this future is dropped: the release then comes after it.
    ///
    /// # Errors
    /// [`ErrorKind::CommitRefused`](crate::ErrorKind::CommitRefused) if nothing of the work stays, also because the
    /// hold had ended before; [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown) if nobody knows whether it
    /// stays. The engine treats every other error like `CommitUnknown`.
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
    /// Whether to reserve even while others wait for the lock, as far as the store knows.
    pub even_if_awaited: bool,
}

impl Reservation {
    /// This many tokens, if nobody else waits for the lock.
    #[must_use]
    pub const fn new(tokens: u32) -> Self {
        Self { tokens, even_if_awaited: false }
    }

    /// Sets whether to reserve even while others wait for the lock.
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
        /// The lowest token.
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
