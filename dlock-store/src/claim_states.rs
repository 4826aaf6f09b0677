//! Requests on our thread, and the states of the claims that they serve: for stores in which a claim has a session or a
//! place, and whose requests run to their end even if their callers are dropped.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use dlock_contract::{Error, Owner, Result};
use futures::future::BoxFuture;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot};

use crate::own_thread::background;
use crate::thread::foreign::guarded;

/// Runs a request on our thread. It goes on if its caller is dropped or not polled, so an abandon can follow it in order.
///
/// # Errors
/// The error of the request; an outage if the request ended without an answer.
///
/// ```
/// use std::sync::mpsc::channel;
///
/// let (sent, is_sent) = channel();
/// let request = dlock_store::detached(async move { Ok(sent.send("released").is_ok()) });
/// assert!(futures::executor::block_on(request)?);
/// assert_eq!(is_sent.recv(), Ok("released"));
/// # Ok::<(), dlock_contract::Error>(())
/// ```
pub fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> BoxFuture<'static, Result<T>> {
    Box::pin(async move {
        let (sender, answer) = oneshot::channel();
        background()?.spawn(async move {
            // The caller may have been dropped.
            let _ = sender.send(work.await);
        });
        guarded(answer)
            .await
            .unwrap_or_else(|_| Err(Error::outage("a request on dlock's own thread ended without an answer")))
    })
}

/// Access to the state of a claim, for one request at a time, in the order of the calls.
pub type StateAccess<T> = BoxFuture<'static, OwnedMutexGuard<T>>;

/// Takes the next access to the state of a claim. The caller takes it before it spawns the request's task. Otherwise the task
/// of an abandon, which is spawned on our thread, could run before that of an earlier attempt from another thread.
pub async fn next_access<T: Send + 'static>(state: &Arc<AsyncMutex<T>>) -> StateAccess<T> {
    let mut waiting = Box::pin(state.clone().lock_owned());
    match futures::poll!(waiting.as_mut()) {
        Poll::Ready(state) => Box::pin(ready(state)),
        Poll::Pending => waiting,
    }
}

/// The state of each claim that may have something in the store.
///
/// ```
/// use dlock_contract::Owner;
/// use dlock_store::ClaimStates;
///
/// let (states, owner) = (ClaimStates::default(), Owner::fresh()?);
/// let session = states.get_or_make(owner, || Ok("a session"))?;
/// // The abandon of the claim finds the state of its attempt.
/// assert_eq!(states.get(owner), Some(session));
/// # Ok::<(), dlock_contract::Error>(())
/// ```
pub struct ClaimStates<S>(Mutex<HashMap<Owner, Arc<S>>>);

impl<S> Default for ClaimStates<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S> ClaimStates<S> {
    /// The state of a claim, if it may have something in the store.
    pub fn get(&self, owner: Owner) -> Option<Arc<S>> {
        self.states().get(&owner).cloned()
    }

    /// The state of a claim. Its first request makes it.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get_or_make(&self, owner: Owner, make: impl FnOnce() -> Result<S>) -> Result<Arc<S>> {
        if let Some(present) = self.get(owner) {
            return Ok(present);
        }
        let state = Arc::new(make()?);
        Ok(self.states().entry(owner).or_insert(state).clone())
    }

    /// Forgets a state after a release, which is the last request of a claim.
    pub fn forget(&self, owner: Owner, state: &Arc<S>) {
        let mut states = self.states();
        if states.get(&owner).is_some_and(|present| Arc::ptr_eq(present, state)) {
            states.remove(&owner);
        }
    }

    /// Forgets a state of a claim that has nothing in the store, unless another request of the claim waits for it.
    pub fn forget_empty(&self, owner: Owner, state: &Arc<S>) {
        let mut states = self.states();
        // One reference is the table's, and one the caller's. Others are made only through the table.
        if states.get(&owner).is_some_and(|present| Arc::ptr_eq(present, state)) && Arc::strong_count(state) <= 2 {
            states.remove(&owner);
        }
    }

    /// Forgets all states of which this is true, unless a request waits for them.
    pub fn forget_where(&self, is_over: impl Fn(&S) -> bool) {
        self.states().retain(|_, state| Arc::strong_count(state) > 1 || !is_over(state));
    }

    /// How many claims may have something in the store.
    pub fn count(&self) -> usize {
        self.states().len()
    }

    /// Takes all states out.
    pub fn drain(&self) -> Vec<(Owner, Arc<S>)> {
        self.states().drain().collect()
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Owner, Arc<S>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> fmt::Debug for ClaimStates<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimStates").finish_non_exhaustive()
    }
}
