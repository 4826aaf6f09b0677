#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod env;
mod fence_line;
#[cfg(feature = "mysql")]
pub mod mysql;
mod openers;
#[cfg(feature = "postgres")]
pub mod postgres;
mod registry;
#[cfg(feature = "testing")]
pub mod testing;

/// The stores, to be installed with [`install`]; [`connect`] and [`connect_lazy`] open them by URL.
pub mod backends {
    #[cfg(feature = "consul")]
    pub use dlock_consul as consul;
    #[cfg(feature = "etcd")]
    pub use dlock_etcd as etcd;
    #[cfg(feature = "memory")]
    pub use dlock_memory as memory;
    #[cfg(feature = "mysql")]
    pub use dlock_mysql as mysql;
    #[cfg(feature = "paired")]
    pub use dlock_paired as paired;
    #[cfg(feature = "postgres")]
    pub use dlock_postgres as postgres;
    #[cfg(feature = "redis")]
    pub use dlock_redis as redis;
    #[cfg(feature = "redlock")]
    pub use dlock_redlock as redlock;
    #[cfg(feature = "sqlite")]
    pub use dlock_sqlite as sqlite;
    #[cfg(feature = "zookeeper")]
    pub use dlock_zookeeper as zookeeper;
}

/// Writes that carry a fencing token and are refused once a higher one was seen.
///
/// The modules keep the tokens in a table or under a name of dlock's; that of etcd compares the hold itself. [`line`](fenced::line) keeps the token in a column of your own
/// table, by any client.
pub mod fenced {
    #[cfg(feature = "consul")]
    pub use dlock_consul::fenced as consul;
    #[cfg(feature = "etcd")]
    pub use dlock_etcd::fenced as etcd;
    #[cfg(feature = "mysql")]
    pub use dlock_mysql::fenced as mysql;
    #[cfg(feature = "postgres")]
    pub use dlock_postgres::fenced as postgres;
    #[cfg(feature = "redis")]
    pub use dlock_redis::fenced as redis;
    #[cfg(feature = "sqlite")]
    pub use dlock_sqlite::fenced as sqlite;
    #[cfg(feature = "zookeeper")]
    pub use dlock_zookeeper::fenced as zookeeper;

    pub use crate::fence_line::{Line, line};
}

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
    Backoff, Clock, Cursor, Error, ErrorKind, Fence, Health, HoldId, Holder, Key, KeyPart, KeyWriter, LastSuccess,
    LockKey, LockState, LossCause, MAX_KEY_BYTES, Mode, Note, OncePer, Result,
};
#[cfg(feature = "macros")]
pub use dlock_macros::{distributed_lock, optimistic, scheduled_lock};
#[doc(hidden)]
pub use dlock_runtime::__private;
pub use dlock_runtime::{
    BreakHold, Candidates, CarriesError, Cohort, Conflict, Defaults, Election, Event, Explained, Guard, Guards, Held,
    HeldLock, Inherit, KeyList, Label, Leader, LeaderWatch, Leadership, ListedLock, Lock, LockAll, LockReturn, Locks,
    LocksPage, Observer, OnLost, Outcome, Renew, Retry, SeenLeader, ShutdownReport, SiteInfo, SkipReturn, Skipped,
    Tuning, Unusable, Wait, assert_locked, break_lock, configure, current, current_locks, elect, explain, held,
    holders, inherit, install, is_locked, key_of, key_of_blocking, keys_of, last_success, lock, lock_all, locks,
    observe, ready, set_default, shutdown, sites, verify,
};
pub use registry::Registry;

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

/// What the guide for newcomers shows is compiled.
#[cfg(all(doctest, feature = "macros"))]
#[doc = include_str!("../docs/coming-from.md")]
struct ComingFrom;

#[cfg(doctest)]
#[doc = include_str!("../docs/redlock.md")]
struct Redlock;

#[cfg(doctest)]
#[doc = include_str!("../docs/paired.md")]
struct Paired;

#[cfg(doctest)]
#[doc = include_str!("../docs/leadership.md")]
struct LeadershipPage;

#[cfg(all(doctest, feature = "macros", feature = "postgres"))]
#[doc = include_str!("../docs/choosing.md")]
struct Choosing;
