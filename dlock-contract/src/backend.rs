//! The contract between the engine and a store.
//!
//! A backend makes *one attempt* each time it is called: it does not retry, and it does not pace callers. It may run tasks
//! for its connections and sessions, on dlock's own thread (crate `dlock-store`). Contention is a value, failure is an error. The
//! store's clock decides who holds the lock. The engine's clock only decides when it stops trusting a hold.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::answer::{Attempt, Queue, Released, Standing};
use crate::claim::Claim;
use crate::error::Result;
use crate::health::Health;
use crate::hold::Hold;
use crate::identity::Identity;
use crate::inspect::{Inspect, LockState};
use crate::key::LockKey;
use crate::powers::{Batch, Exchange, Keeps, Periods, Settle, Tokens};
use crate::profile::Profile;

/// A store that locks can live in. See `docs/ADDING_A_BACKEND.md`; the conformance suite says whether it is right.
///
/// Every method is called inside a tokio runtime: the caller's, or dlock's own where the caller has none or where
/// [`Profile::runs_on`] says so. Every returned future may be dropped at any point, and is: the engine bounds every
/// request by the ttl and by 5 s, so a backend needs no time limits of its own, except for connecting.
pub trait Backend: Send + Sync + 'static {
    /// The kind, limits and options of the store. Every call returns the same profile.
    fn profile(&self) -> &Profile;

    /// Where the store is, for its lines in the log: host and port of each server, `cache-1:6379, cache-2:6379`, or the path of
    /// its file; the name of the database may follow. Never a user or a password. `None` where the store lives in this process.
    fn host(&self) -> Option<String> {
        None
    }

    /// Which lock this key is, and its names in the store. Keys of one identity are one lock, and the engine lets callers of
    /// this process wait for each other by it. It never renames a claim: all requests carry the key as the caller gave it.
    ///
    /// Unless a store says otherwise, each key is a lock of its own, and its name in the store.
    ///
    /// # Errors
    /// For a key that has no name there.
    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(key))
    }

    /// Asks once for the lock.
    ///
    /// Idempotent by owner: if the store already knows this owner as the holder (the reply of an earlier attempt was
    /// lost), the lease is armed anew and `valid.from` is the start of *this* request; its token may rise, and never
    /// falls, and its slot stays. Contended under [`Queue::Leave`], it leaves nothing behind; under [`Queue::Join`] it may
    /// leave a place in its wait queue. Every grant of whatever mode has a higher token than all earlier ones of its key.
    ///
    /// # Errors
    /// [`ErrorKind::KeyConflict`](crate::ErrorKind::KeyConflict), not retryable and without a trace, while the key is
    /// held in a mode that does not [mix](crate::Mode::mixes_with) with the claim's, or, in a store with a wait queue,
    /// is waited for by one. After any other error the engine calls [`abandon`](Self::abandon), which undoes what the
    /// attempt may have left. The backend must not undo it by itself: its late undo could free what the same owner wins
    /// next.
    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>>;

    /// Hints that callers of this process wait for each other's holds of this key, so other processes probably want it
    /// too. A store may change how it asks.
    fn expects_others(&self, key: &LockKey) {
        let _ = key;
    }

    /// Prolongs holds; one answer for each, in order. It never creates a hold. A hold that its owner does not have any
    /// more is [`Standing::Lost`], and so is a hold whose session is known to have ended. An error means *unknown*, and
    /// unknown is not lost. Renewing one hold of a group may prolong the others; the engine counts only on the answers.
    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>>;

    /// Frees the lock, if it is still this owner's.
    ///
    /// After a retryable error the engine asks again until there is an answer, and then no more. An earlier request of
    /// the same release may have freed the lock. So the later answer may be either one, but the store must not have the
    /// hold any more.
    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>>;

    /// Ends an acquisition that may have left something: a place in a wait queue, or a grant whose answer was lost.
    /// Also frees the lock if this owner has it, and gives the period of [`Claim::once_per`] back. Leaves no trace. It
    /// may be called more than once, also without need, but never after the claim's hold was used.
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>>;

    /// Returns the holders of the lock, the first grant first, and the number of waiters. Changes nothing.
    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>>;

    /// Asks the store whether it takes locks now, for a readiness probe. It repeats the checks of the opening, as far
    /// as a request or two can: role, version, rights, settings.
    ///
    /// # Errors
    /// If a lock could not be taken now: no answer, a replica, missing rights, a schema of another release.
    fn ready(&self) -> BoxFuture<'_, Result<Health>>;

    /// Whether the store takes locks in the namespace of this key, for a readiness probe. Changes nothing.
    ///
    /// # Errors
    /// If the store refuses all locks of the namespace, for instance because other programs lock it in another way.
    fn admits<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<()>> {
        let _ = key;
        Box::pin(std::future::ready(Ok(())))
    }

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

    /// Ending a body's own work inside of its hold, if that decides the result of a call.
    fn settle(&self) -> Option<&dyn Settle> {
        None
    }

    /// Listing locks and breaking holds, if the store offers it.
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Ends connections and sessions, at the end of a shutdown. Holds were released before. Nothing is connected any more: a request
    /// that comes later fails with [`ErrorKind::ShutDown`](crate::ErrorKind::ShutDown).
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
