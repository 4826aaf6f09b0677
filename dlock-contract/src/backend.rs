//! The contract between the core and a store.
//!
//! A backend makes *one attempt* each time it is called: it never sleeps, retries, spawns, or logs a policy. Contention
//! is a value, failure is an error. The store's clock decides who holds; ours only decides when we stop believing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::backoff::Backoff;
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::inspect::{Inspect, LockState};
use crate::instant::BootInstant;
use crate::key::LockKey;
use crate::mode::Mode;
use crate::note::Note;
use crate::once_per::OncePer;
use crate::owner::Owner;
use crate::powers::{Batch, Exchange, Keeps, Periods, Tokens};

use crate::hold::{Hold, Validity};

/// A store that locks can live in. See `docs/ADDING_A_BACKEND.md`; the conformance suite says whether it is right.
///
/// Every method is called inside a tokio runtime: the caller's, or dlock's own where the caller has none or where
/// [`Capabilities::connection_per_hold`] is set. Every returned future may be dropped at any point, and is: the core
/// bounds every request by the ttl and by 5 s, so a backend needs no time limits of its own, except for connecting.
pub trait Backend: Send + Sync + 'static {
    /// The kind of store in one word, such as `redis`.
    fn kind(&self) -> &'static str;

    /// What the store can do; the same at every call.
    fn capabilities(&self) -> &Capabilities;

    /// The key under which the store keeps this one. Keys of one name are one lock: the core knows it by that name, and so
    /// does the backend in all that follows. The key as it is, unless the store shares its names with others.
    ///
    /// # Errors
    /// For a key that has no name there.
    fn name_of(&self, key: &LockKey) -> Result<LockKey> {
        Ok(key.clone())
    }

    /// Asks once for the lock.
    ///
    /// Idempotent by owner: if the store already knows this owner as the holder (the reply of an earlier attempt was
    /// lost), the lease is armed anew and `valid.from` is the start of *this* request; its token may rise, and never
    /// falls, and its slot stays. Contended under [`Stand::No`], it leaves nothing behind; under [`Stand::Until`] it may
    /// leave a place in a line. Every grant of whatever mode has a higher token than all earlier ones of its key.
    ///
    /// # Errors
    /// [`ErrorKind::KeyConflict`](crate::ErrorKind::KeyConflict), not retryable and without a trace, while the key is held
    /// by a kind that does not [mix](Mode::mixes_with) with the claim's, or, in a store with a line, is waited for by one.
    /// What an attempt with any other error may have left is undone by the core, by [`abandon`](Self::abandon): an undo of
    /// the backend's own that comes late could meet what the same owner wins next.
    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>>;

    /// Callers of this process wait for each other's holds of this key: the next attempts will hardly be alone. A hint,
    /// for stores that ask in another way then.
    fn expects_others(&self, key: &LockKey) {
        let _ = key;
    }

    /// Prolongs holds; one answer for each, in order. It never creates: what is not ours any more is
    /// [`Standing::Lost`]; so is a hold whose session has surely ended. An error means *unknown*, and unknown is not
    /// lost. Renewing one hold of a group may prolong the others; the core counts only on the answers.
    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>>;

    /// Frees the lock, if it is still this owner's.
    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>>;

    /// Ends an acquisition that may have left something: a place in a line, or a grant whose answer was lost. Frees
    /// the lock too if it is this owner's, and gives the period of [`Claim::once_per`] back. Leaves no trace; may be
    /// called more than once, also without need, but never once the claim's hold was used.
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>>;

    /// Who holds the lock, the first grant first, and how many wait for it. Changes nothing.
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>>;

    /// Ending a hold and keeping its key (`min_hold`), if this instance offers it. Like every power, it is offered at each
    /// call or at none.
    fn keeps(&self) -> Option<&dyn Keeps> {
        None
    }

    /// One start in each period (`once_per`) and the last success, if this instance offers them.
    fn periods(&self) -> Option<&dyn Periods> {
        None
    }

    /// Fencing tokens reserved for a hold that is passed on inside of a process (`cohort`), if this instance offers them.
    fn tokens(&self) -> Option<&dyn Tokens> {
        None
    }

    /// A release that also asks for the next caller, if this instance offers it.
    fn exchange(&self) -> Option<&dyn Exchange> {
        None
    }

    /// Several locks in one step, if this instance offers it. Without it they are taken one after another.
    fn batch(&self) -> Option<&dyn Batch> {
        None
    }

    /// Listing locks and breaking holds, if the store offers it.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Ends connections and sessions, at the end of a shutdown. Holds were released before.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// What one acquisition asks for. Built once, unchanged through all of its attempts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The lock's full name.
    pub key: LockKey,
    /// Who asks: fresh for each acquisition.
    pub owner: Owner,
    /// How long the store shall keep the lock without a renewal.
    pub ttl: Duration,
    /// Will the hold be renewed? Where holds share a lease, one that is not renewed needs a lease of its own.
    pub renewed: bool,
    /// Who may hold it beside whom. Only what [`Capabilities`] says the store can do.
    ///
    /// Each holder has a lease, an owner and a note of its own, and ends alone. [`Mode::Read`] comes in beside readers,
    /// but stands behind a writer that waits. [`Mode::Permits`] has the lowest [slot](Hold::slot) that no living hold
    /// has; a hold that ends frees just its own.
    pub mode: Mode,
    /// Must nobody be overtaken who came earlier? Only where [`Capabilities::fair`].
    pub fair: bool,
    /// At most one start in each period; only where the store offers [`Periods`].
    ///
    /// A period is told by its boundary: of the times [`offset`](OncePer::offset) + k × [`period`](OncePer::period)
    /// since 1970, the one that is nearest by the store's wall clock, found anew at each attempt. If a run of this
    /// boundary or a later one was started under the key, the answer is [`Attempt::AlreadyRun`], also
    /// while its winner still holds the lock. A run of an earlier period that still holds the lock is contention as usual.
    ///
    /// With [`OncePer::rerun`], a run that was started and has not ended (no [`RunEnd`](crate::RunEnd) came) is contention
    /// for as long as the lock is held, by whomever, and is granted again once it is free, and no earlier: a plain release
    /// frees it at once, a lease when it ends. When it has ended the answer is [`Attempt::AlreadyRun`], also while the key
    /// is [kept](Keeps::keep): who waits learns of that end as of a release, and not by the end of a lease.
    ///
    /// A grant notes its start in the same atomic step, also one out of a line. The note outlives release and expiry, and
    /// may be forgotten two periods later. An [abandon](Backend::abandon) takes it back, the claim's own alone: nothing
    /// was run under it, so the period is due again; and while the claim still asks, a start of its own is none. With
    /// `rerun` it may stay as a start that has not ended.
    pub once_per: Option<Box<OncePer>>,
    /// The pause between two attempts, where its caller has said one: for a store that can only be polled, and notes who
    /// waits.
    pub backoff: Option<Box<Backoff>>,
    /// What to store beside the owner.
    pub note: Note,
    /// The runtime in which the attempts run; an abandon goes over the same connection while that lives, since two
    /// connections have no order.
    pub origin: Option<tokio::runtime::Id>,
}

impl Claim {
    /// A claim with a fresh owner, renewed, noted as `site`; for the conformance suite and for tests of backends.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn new(key: LockKey, ttl: Duration, site: &str) -> Result<Self> {
        let note = Note::new(std::process::id(), site, crate::clock::Clock::system().wall_ms(), None);
        Ok(Self { origin: crate::background::here(), ..Self::plain(key, Owner::fresh()?, ttl, note) })
    }

    /// The claim after a change of its fields.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// An exclusive claim that asks for nothing special; the engine sets the other fields.
    #[doc(hidden)]
    #[must_use]
    pub const fn plain(key: LockKey, owner: Owner, ttl: Duration, note: Note) -> Self {
        Self {
            key,
            owner,
            ttl,
            renewed: true,
            mode: Mode::Exclusive,
            fair: false,
            once_per: None,
            backoff: None,
            note,
            origin: None,
        }
    }
}

/// May a contended attempt take a place in a line?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// No: it leaves nothing in the store.
    No,
    /// Yes; the caller waits until then at most.
    Until(BootInstant),
}

/// The answer to one attempt.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is ours.
    Acquired(Hold),
    /// Somebody else has it.
    Contended(Wake),
    /// The run of this period was started already, by somebody; see [`Claim::once_per`]. Nothing of ours is left.
    AlreadyRun,
}

/// How a waiter learns that it is worth asking again. Owned: it may hold a session or a place. Dropping it frees only
/// what is local; the core follows with [`Backend::abandon`] unless it took a [`Hold`] out of it.
///
/// The core keeps a wake alive until the next attempt has answered, so no news falls between two of them.
pub struct Wake {
    /// Ends when there is news; `None` where the store can only be polled.
    pub signal: Option<BoxFuture<'static, Result<Signal>>>,
    /// Ask again by then without any news, for instance because the present lease ends; `None` if nothing is known.
    pub ask_by: Option<BootInstant>,
    /// How long the present holder's lease still runs, if the store told.
    pub lease_left: Option<Duration>,
    /// Who holds the lock, if the store's answer tells it.
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
    /// No news will come: the core asks again at its own pace.
    #[must_use]
    pub fn poll() -> Self {
        Self { signal: None, ask_by: None, lease_left: None, held_by: None }
    }

    /// News will come by `signal`.
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

    /// Tells how long the present holder's lease still runs.
    #[must_use]
    pub fn lease_left(mut self, left: Duration) -> Self {
        self.lease_left = Some(left);
        self
    }

    /// Tells who holds the lock.
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

/// What a renewal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Still ours, and for so long again.
    Renewed(Validity),
    /// Not ours any more.
    Lost,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was ours and is free now, or handed on.
    Released,
    /// It was not ours any more; nothing was changed.
    NotOwner,
}
