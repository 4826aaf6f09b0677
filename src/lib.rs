#![doc = include_str!("front.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod fence_line;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "mysql")]
pub mod mysql;
mod openers;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "testing")]
pub mod testing;

/// Version columns in tables of your own, for [`optimistic`] functions.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod versioned {
    #[cfg(feature = "mysql")]
    pub use dlock_mysql::versioned as mysql;
    #[cfg(feature = "postgres")]
    pub use dlock_postgres::versioned as postgres;
}

// For users of locks.
pub use dlock_contract::{
    Backend, Backoff, Cursor, Durability, Error, ErrorKind, Expiry, Fence, Fencing, Health, HoldId, Holder, Key,
    KeyPart, KeyWriter, LastSuccess, LockKey, LockState, LossCause, MAX_KEY_BYTES, Mode, Note, OncePer, Profile,
    Result, TtlRange, WakeStyle,
};
#[cfg(feature = "macros")]
pub use dlock_macros::{distributed_lock, optimistic, scheduled_lock};
#[doc(hidden)]
pub use dlock_runtime::__private;
pub use dlock_runtime::{
    BreakHold, Candidates, CarriesError, Cohort, Conflict, Defaults, Election, Event, Explained, GrantWay, Guard,
    Guards, Held, HeldLock, Inherit, KeyList, Label, Leader, LeaderWatch, Leadership, ListedLock, Lock, LockAll,
    LockReturn, Locks, LocksPage, Observer, OnLost, Operation, Outcome, Registry, Renew, RequestOutcome, Retry,
    SeenLeader, ShutdownReport, SiteInfo, SkipReturn, Skipped, StoreEvent, StoreLabel, Tuning, Unusable, Wait,
    WaitedLock, assert_locked, break_lock, configure, current, current_locks, elect, explain, held, holders, inherit,
    install, is_locked, key_of, key_of_blocking, keys_of, last_success, lock, lock_all, locks, observe, ready,
    set_default, shutdown, sites, verify, waited_for,
};
pub use dlock_store::Clock;
pub use openers::{backends, fenced};

/// Opens the store behind a URL and installs it under a name; see [`Registry::connect`].
///
/// # Errors
/// See [`Registry::connect`].
pub async fn connect(name: &str, url: &str) -> Result<()> {
    Registry::global().connect(name, url).await
}

/// Installs the store behind a URL, to be opened at its first use; see [`Registry::connect_lazy`].
///
/// # Errors
/// See [`Registry::connect_lazy`].
pub fn connect_lazy(name: &str, url: &str) -> Result<()> {
    Registry::global().connect_lazy(name, url)
}

/// Installs what the environment names, and gives the names; see [`Registry::connect_from_env`].
///
/// # Errors
/// See [`Registry::connect_from_env`].
pub async fn connect_from_env() -> Result<Vec<String>> {
    Registry::global().connect_from_env().await
}

/// The examples of the guide for newcomers. They are compiled as doctests.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../docs/coming-from.md")]
struct ComingFrom;

#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;

#[cfg(doctest)]
#[doc = include_str!("../backends/redlock/README.md")]
struct Redlock;

#[cfg(doctest)]
#[doc = include_str!("../backends/paired/README.md")]
struct Paired;

#[cfg(doctest)]
#[doc = include_str!("../docs/leadership.md")]
struct LeadershipPage;

#[cfg(all(doctest, feature = "macros", feature = "postgres"))]
#[doc = include_str!("../docs/choosing.md")]
struct Choosing;
