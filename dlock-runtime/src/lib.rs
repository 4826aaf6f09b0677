//! The runtime of dlock: the code behind `#[distributed_lock]`. Use it through the crate `dlock-rs`.
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod acquire;
mod api;
mod events;
mod guard;
mod hold;
mod options;
mod queue;
mod site;
mod sync;

pub use api::break_hold::BreakHold;
pub use api::catalogue::{Explained, SiteInfo, Unusable, sites};
pub use api::elect::{Candidates, Election, Leader, LeaderWatch, Leadership, SeenLeader};
pub use api::inspect::{HeldLock, ListedLock, Locks, LocksPage};
pub use api::key_of::{key_of, key_of_blocking, keys_of};
pub use api::lock::{Lock, LockAll};
pub use api::optimistic::Conflict;
pub use api::outcome::{CarriesError, LockReturn, Outcome, SkipReturn, Skipped};
pub use api::registry::{Registry, ShutdownReport};
pub use api::waited::WaitedLock;
pub use dlock_contract::{
    Backoff, Cursor, Error, ErrorKind, Fence, Health, HoldId, Holder, Key, KeyPart, KeyWriter, LastSuccess, LockKey,
    LockState, LossCause, MAX_KEY_BYTES, Mode, Note, OncePer, Result,
};
pub use dlock_store::Clock;
pub use events::event::{Event, GrantWay};
pub use events::observer_list::Observer;
pub use events::store_event::{Operation, RequestOutcome, StoreEvent};
pub use guard::Guard;
pub use guard::guard_set::Guards;
pub use guard::held::Held;
pub use guard::scope::{Inherit, current, current_locks, inherit};
pub use options::tunings::Tuning;
pub use options::{Cohort, Defaults, OnLost, Renew, Retry, Wait};
pub use site::key_list::KeyList;
pub use site::{Label, StoreLabel};

use std::time::Duration;

/// Installs a backend under a name; see [`Registry::install`].
///
/// # Errors
/// See [`Registry::install`].
pub fn install(name: &str, backend: impl dlock_contract::Backend) -> Result<()> {
    Registry::global().install(name, backend)
}

/// Sets the backend of the locks that name none; see [`Registry::set_default`].
///
/// # Errors
/// See [`Registry::set_default`].
pub fn set_default(name: &str) -> Result<()> {
    Registry::global().set_default(name)
}

/// Asks the store of an installed backend whether it takes locks now; see [`Registry::ready`].
///
/// ```
/// # use dlock_runtime as dlock;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # dlock::install("redis", dlock_memory::Memory::new())?;
/// // In the handler of the readiness probe:
/// let health = dlock::ready("redis").await?;
/// assert!(health.findings.is_empty(), "{health}");
/// # Ok::<(), dlock::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// See [`Registry::ready`].
pub async fn ready(name: &str) -> Result<Health> {
    Registry::global().ready(name).await
}

/// Sets the defaults of all locks that do not say otherwise; see [`Registry::configure`].
///
/// # Errors
/// See [`Registry::configure`].
pub fn configure(change: impl FnOnce(&mut Defaults)) -> Result<()> {
    Registry::global().configure(change)
}

/// Checks every annotated function of the program against the installed backends; see [`Registry::verify`].
///
/// # Errors
/// See [`Registry::verify`].
pub fn verify() -> std::result::Result<(), Unusable> {
    Registry::global().verify()
}

/// The settings of every annotated function; see [`Registry::explain`].
#[must_use]
pub fn explain() -> Explained {
    Registry::global().explain()
}

/// Panics unless the enclosing call holds a lock, or this lock: for code that must only run under one.
///
/// A key is written as for [`lock`]: `assert_locked!("nightly")`, `assert_locked!(Key::text("stock:").value(&id))`.
/// A hold that has ended meanwhile counts as none.
///
/// ```
/// # use dlock_runtime as dlock;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_runtime::Error> {
/// # dlock_runtime::install("local", dlock_memory::Memory::new())?;
/// fn write_off() {
///     dlock::assert_locked!();
///     dlock::assert_locked!("stock");
/// }
/// dlock::lock("stock").backend("local").run(|_| async { write_off() }).await?;
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! assert_locked {
    () => {
        ::core::assert!(
            $crate::current_locks(|_| true),
            "this code must run under a lock, and the enclosing call holds none"
        )
    };
    ($key:expr $(,)?) => {{
        let key = $crate::Key::from($key);
        ::core::assert!(
            $crate::current_locks(|held| held.is_of(&key)),
            "this code must run under the lock {key}, which the enclosing call does not hold"
        )
    }};
}

/// Installs an observer of the events of every lock; see [`Observer`].
pub fn observe(observer: impl Observer) {
    Registry::global().observe(observer);
}

/// A lock on `key`, to be acquired by hand; see [`Lock`].
#[track_caller]
pub fn lock(key: impl Into<Key>) -> Lock {
    Registry::global().lock(key)
}

/// An election of a leader among the processes; see [`Election`].
#[track_caller]
pub fn elect(name: impl Into<Key>) -> Election {
    Registry::global().elect(name)
}

/// Several locks, to be acquired together, all or none; see [`LockAll`].
#[track_caller]
pub fn lock_all(keys: impl IntoIterator<Item = impl Into<Key>>) -> LockAll {
    Registry::global().lock_all(keys)
}

/// Whether anybody holds this lock on the default backend; see [`Lock::is_locked`].
///
/// # Errors
/// See [`Lock::is_locked`].
pub async fn is_locked(key: impl Into<Key>) -> Result<bool> {
    lock(key).is_locked().await
}

/// The last run that succeeded under this key on the default backend; see [`Lock::last_success`].
///
/// # Errors
/// See [`Lock::last_success`].
pub async fn last_success(key: impl Into<Key>) -> Result<Option<LastSuccess>> {
    lock(key).last_success().await
}

/// The holders of a lock on the default backend, and the number of waiters; see [`Lock::holders`]. For a key that somebody has
/// typed use [`Locks::like`].
///
/// # Errors
/// See [`Lock::holders`].
pub async fn holders(key: impl Into<Key>) -> Result<LockState> {
    lock(key).holders().await
}

/// The locks that this process holds now, on all backends of the global registry; see [`Registry::held`].
#[must_use]
pub fn held() -> Vec<HeldLock> {
    Registry::global().held()
}

/// The locks for which callers of this process wait now, on all backends of the global registry; see [`Registry::waited_for`].
#[must_use]
pub fn waited_for() -> Vec<WaitedLock> {
    Registry::global().waited_for()
}

/// Ends another owner's hold of a lock on the default backend; see [`BreakHold`].
pub fn break_lock(key: impl Into<Key>, id: HoldId) -> BreakHold {
    lock(key).break_hold(id)
}

/// The locks that are held on the default backend, page by page; see [`Locks`].
pub fn locks() -> Locks {
    Registry::global().locks()
}

/// Stops granting, waits until the holds are released, and closes the backends; see [`Registry::shutdown`].
///
/// Call it last in `main`, when all guards are dropped: dropped guards are released on dlock's thread, which ends with
/// the process. A guard that is alive at this call keeps its lock until its ttl ends.
pub async fn shutdown(deadline: Duration) -> ShutdownReport {
    Registry::global().shutdown(deadline).await
}

/// The items that the macro's expansion names. Not part of the public interface: they may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use inventory;
    pub use std::{boxed::Box, vec::Vec};

    pub use crate::api::blocking::{begin_sync, hold_sync, run_sync};
    pub use crate::api::connect::UrlTable;
    pub use crate::api::fallback::{FallbackCall, FallbackIsFuture, FallbackIsValue, SameOutput};
    pub use crate::api::lazy_return::{Returned, ReturnsValue, ReturnsWork, has_run};
    pub use crate::api::optimistic::{Attempts, OptimisticReturn, attempt, pause, pause_sync};
    pub use crate::api::outcome::{LockReturn, Ran, Skip, SkipReturn, unreached};
    pub use crate::api::run::{Run, begin, hold, run};
    pub use crate::guard::guard_set::Guards;
    pub use crate::guard::scope::{fence_now, holding_now};
    pub use crate::options::constants::{fixed_count, fixed_time};
    pub use crate::options::{Cohort, OnLost, Options, Otherwise, Renew, Retry, Wait};
    pub use crate::site::key_list::EachOf;
    pub use crate::site::{Call, Registered, Site};
    pub use dlock_contract::engine::{KeyBuf, KeyBuilder};
    pub use dlock_contract::{Backoff, Mode, OncePer};
}

/// Parts that the test kit of the facade uses. No part of the public interface: it may change in any release.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod __kit {
    pub use crate::acquire::test_kits::InUse;
    pub use crate::acquire::thread_registry::Entered;
    pub use crate::api::registry::enter;
}
