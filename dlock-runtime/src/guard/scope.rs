//! The holds of the enclosing call. With them, a call that would wait for itself fails at once.
//!
//! They are set while a body is polled, so siblings (`join!`) are no enclosing calls of each other. A spawned task
//! starts with nothing, unless it was given its parent's holds by [`inherit`].
//!
//! A body may poll tasks of its own thread: a sync one by `Runtime::block_on` of a current-thread runtime, an async one
//! by a `LocalSet`. Such a task is another caller, although it runs inside the body's poll. So the holds count for one
//! task of tokio, or for a thread that runs none. Executors without task ids, such as `futures::executor::LocalPool`,
//! cannot be seen: a task that they poll inside of a body counts as the body.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use dlock_contract::{Error, ErrorKind, Fence, HoldId, LockKey, Result};
use tokio::task;

use crate::guard::Held;
use crate::hold::store::Store;
use crate::hold::tenure::Tenure;

thread_local!(static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) });

/// The innermost lock that a caller holds.
struct Scope {
    tenure: Arc<Tenure>,
    /// The caller's task; `None` for a thread that runs none.
    task: Option<task::Id>,
}

/// The innermost lock that the enclosing call holds: its fencing token, its check, its loss.
///
/// ```
/// # use dlock_runtime as dlock;
/// # async fn write(_token: u64) {}
/// # async fn body() -> Result<(), dlock_runtime::Error> {
/// let held = dlock::current().expect("called under a lock");
/// held.check()?;                       // still held? no round trip
/// write(held.fence()?.get()).await;    // the resource refuses what is older than it has seen
/// # Ok(()) }
/// ```
#[must_use]
pub fn current() -> Option<Held> {
    innermost().map(Held)
}

/// Whether the enclosing call, or one around it, still holds a lock that `wanted` accepts.
#[must_use]
pub fn current_locks(wanted: impl Fn(&Held) -> bool) -> bool {
    chain().map(Held).any(|held| wanted(&held) && held.check().is_ok())
}

/// The innermost lock, for a body that has asked for its guard.
///
/// # Errors
/// Never inside of a body.
#[doc(hidden)]
pub fn holding_now() -> Result<Held> {
    current().ok_or_else(|| Error::new(ErrorKind::Internal, "a body ran outside its lock; please report it"))
}

/// The fencing token of the innermost lock, for a body that has asked for it.
///
/// # Errors
/// Never inside of a body, since a store without tokens was refused before.
#[doc(hidden)]
pub fn fence_now() -> Result<Fence> {
    holding_now()?.fence()
}

/// Makes a future, to be spawned as a task of its own, count as the same holder as the present call.
///
/// Inside, [`current`] finds the enclosing call's lock, and asking for it again gives `WouldDeadlock` at once instead
/// of a wait for oneself. The lock still ends with the call that took it: await the child before that.
///
/// Without it a spawned task does not have its parent's locks, also one of `spawn_local` that is polled while the
/// parent's body is. Branches of `join!` and `select!`, the members of a `FuturesUnordered`, and the main future of a
/// `block_on` inside of the body need none: they are the same caller. An executor without task ids, such as
/// `futures::executor::LocalPool`, cannot be told from its caller: what it polls inside of a body counts as the body.
pub fn inherit<F: Future>(future: F) -> Inherit<F> {
    inside(innermost(), future)
}

/// Makes a future run as if inside of a call with this hold.
pub(crate) const fn inside<F: Future>(held: Option<Arc<Tenure>>, future: F) -> Inherit<F> {
    Inherit { held, future }
}

pub(crate) fn innermost() -> Option<Arc<Tenure>> {
    let of_this_task = |scope: &Scope| (scope.task == task::try_id()).then(|| scope.tenure.clone());
    // In a thread's destructors there is no enclosing call.
    CURRENT.try_with(|current| current.borrow().as_ref().and_then(of_this_task)).ok().flatten()
}

/// The hold of this lock by the enclosing call, or by one around it.
pub(crate) fn holding(store: &Arc<Store>, lock: &LockKey) -> Option<Arc<Tenure>> {
    chain().find(|held| Arc::ptr_eq(&held.store, store) && held.lock == *lock)
}

/// The holds of the enclosing calls in one store, the innermost first, as far as a claim tells them: a call with very many keys
/// has very many.
pub(crate) fn holds_in(store: &Arc<Store>) -> Vec<HoldId> {
    let holds = chain().take(8).filter(|held| Arc::ptr_eq(&held.store, store));
    holds.map(|held| HoldId::of(&held.hold.claim.owner)).collect()
}

/// The holds of the enclosing calls in one store, for a caller that requests many locks.
pub(crate) struct Enclosing {
    by_lock: HashMap<LockKey, Arc<Tenure>>,
    #[cfg(debug_assertions)]
    was_asked: AtomicBool,
}

impl Enclosing {
    pub(crate) fn of(store: &Arc<Store>) -> Self {
        let mut by_lock = HashMap::new();
        for held in chain().filter(|held| Arc::ptr_eq(&held.store, store)) {
            // The innermost comes first.
            by_lock.entry(held.lock.clone()).or_insert(held);
        }
        Self {
            by_lock,
            #[cfg(debug_assertions)]
            was_asked: AtomicBool::new(false),
        }
    }

    /// As [`holding`].
    pub(crate) fn holding(&self, lock: &LockKey) -> Option<Arc<Tenure>> {
        self.by_lock.get(lock).filter(|held| held.is_held()).cloned()
    }

    /// Whether this is the first call of this method.
    #[cfg(debug_assertions)]
    pub(crate) fn is_first(&self) -> bool {
        !self.was_asked.swap(true, Ordering::Relaxed)
    }
}

/// The locks that the enclosing calls hold, the innermost first.
pub(crate) fn chain() -> impl Iterator<Item = Arc<Tenure>> {
    let outwards = std::iter::successors(innermost(), |tenure| tenure.parent.clone());
    #[cfg(test)]
    let outwards = outwards.inspect(|_| crate::hold::tenure::steps::count());
    outwards.filter(|tenure| tenure.is_held())
}

/// The names of these locks, shortened for errors.
pub(crate) fn held_keys() -> Vec<String> {
    chain().take(8).map(|tenure| tenure.hold.claim.key.as_str().chars().take(128).collect()).collect()
}

/// Runs `poll` with `held` as the enclosing call's innermost lock.
pub(crate) fn within<T>(held: Option<Arc<Tenure>>, poll: impl FnOnce() -> T) -> T {
    struct Restore(Option<Scope>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let inner = self.0.take();
            let _ = CURRENT.try_with(|current| current.replace(inner));
        }
    }
    let scope = held.map(|tenure| Scope { tenure, task: task::try_id() });
    let outer = CURRENT.try_with(|current| current.replace(scope)).ok().flatten();
    let _restore = Restore(outer);
    poll()
}

pin_project_lite::pin_project! {
    /// A future that counts as the holder of its parent's locks; see [`inherit`].
    #[derive(Debug)]
    #[must_use = "a future does nothing until it is awaited or spawned"]
    pub struct Inherit<F> {
        held: Option<Arc<Tenure>>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Inherit<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        within(this.held.clone(), || this.future.poll(cx))
    }
}
