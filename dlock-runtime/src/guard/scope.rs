//! The holds of the enclosing calls. With them, a call that would wait for itself fails at once.
//!
//! They are set while a body is polled, so siblings (`join!`) are no enclosing calls of each other. Only the present
//! poll counts, and not the first one: a call that another task goes on with is not inside of the body in which it
//! began. A spawned task starts with nothing, unless it was given its parent's holds by [`inherit`].
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

use crate::guard::held::Held;
use crate::guard::holds::Holds;
use crate::hold::store::Store;
use crate::hold::tenure::Tenure;

thread_local!(static BODIES: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) });

/// A body that this thread runs at this moment. The bodies inside of it come after it.
#[derive(Debug)]
struct Body {
    holds: Holds,
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
    innermost_holds().map(|holds| Held(holds.last().clone()))
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
    let outermost_first = bodies().into_iter().rev();
    Inherit { bodies: outermost_first.map(|holds| Body { holds, task: None }).collect(), future }
}

/// The holds of the innermost body, or of the call for several keys that takes a further one.
pub(crate) fn innermost_holds() -> Option<Holds> {
    bodies().into_iter().next()
}

/// The bodies of this caller that run now, the innermost first.
fn bodies() -> Vec<Holds> {
    let task = task::try_id();
    let of_this_task = |bodies: &RefCell<Vec<Body>>| {
        let bodies = bodies.borrow();
        bodies.iter().rev().take_while(|body| body.task == task).map(|body| body.holds.clone()).collect()
    };
    // In a thread's destructors there is no enclosing call.
    BODIES.try_with(of_this_task).unwrap_or_default()
}

/// The hold of this lock by the enclosing call, or by one around it.
pub(crate) fn holding(store: &Arc<Store>, lock: &LockKey) -> Option<Arc<Tenure>> {
    chain().find(|held| held.store.is_same(store) && held.lock == *lock)
}

/// The holds of the enclosing calls in one store, the innermost first, as far as a claim lists them: a call with very
/// many keys has very many.
pub(crate) fn holds_in(store: &Arc<Store>) -> Vec<HoldId> {
    let holds = chain().take(8).filter(|held| held.store.is_same(store));
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
        for held in chain().filter(|held| held.store.is_same(store)) {
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

    /// Notes that a key of the list has asked. True for the first one.
    #[cfg(debug_assertions)]
    pub(crate) fn mark_asked(&self) -> bool {
        !self.was_asked.swap(true, Ordering::Relaxed)
    }
}

/// The locks that the enclosing calls hold, the innermost first.
pub(crate) fn chain() -> impl Iterator<Item = Arc<Tenure>> {
    let outwards = bodies().into_iter().flat_map(Holds::own);
    #[cfg(test)]
    let outwards = outwards.inspect(|_| crate::hold::tenure::steps::count());
    outwards.filter(|tenure| tenure.is_held())
}

/// The names of these locks, shortened for errors.
pub(crate) fn held_keys() -> Vec<String> {
    chain().take(8).map(|tenure| tenure.label.shown_key().chars().take(128).collect()).collect()
}

/// Runs `poll`, the body of a call or a part of it, inside of the call's holds.
pub(crate) fn within<T>(holds: Holds, poll: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let _ = BODIES.try_with(|bodies| bodies.borrow_mut().pop());
        }
    }
    let body = Body { holds, task: task::try_id() };
    let has_entered = BODIES.try_with(|bodies| bodies.borrow_mut().push(body)).is_ok();
    let _leave = has_entered.then_some(Leave);
    poll()
}

pin_project_lite::pin_project! {
    /// A future that counts as the holder of its parent's locks; see [`inherit`].
    #[derive(Debug)]
    #[must_use = "a future does nothing until it is awaited or spawned"]
    pub struct Inherit<F> {
        bodies: Vec<Body>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Inherit<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let task = task::try_id();
        this.bodies.iter_mut().for_each(|body| body.task = task);
        let _swapped = Swapped::new(this.bodies);
        this.future.poll(cx)
    }
}

/// Swaps these bodies with those of the thread, and swaps them back when it is dropped.
struct Swapped<'a>(&'a mut Vec<Body>);

impl<'a> Swapped<'a> {
    fn new(bodies: &'a mut Vec<Body>) -> Self {
        let mut swapped = Self(bodies);
        swapped.swap();
        swapped
    }

    fn swap(&mut self) {
        let _ = BODIES.try_with(|bodies| std::mem::swap(&mut *bodies.borrow_mut(), self.0));
    }
}

impl Drop for Swapped<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}
