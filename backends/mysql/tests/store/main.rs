//! All ways on real servers: MariaDB and MySQL. Lease rows have a folder; row locks have `row_cases`; the other files are about named locks.
//!
//! Behaviour in which the two differ is tested on both. The cases of all SQL servers run on MariaDB, and on MySQL with
//! `cargo xtask test --all` alone: the suite runs each way on MySQL each time.

/// Each case of named locks, in a database of its own.
macro_rules! named_cases {
    (on both: $($name:ident)*) => { named_cases! { @mysql $($name)* } };
    (@$mysql:ident $($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::named_kit::run(crate::server::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod $mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::named_kit::run(crate::server::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
    ($($name:ident)*) => { named_cases! { @mysql_thorough $($name)* } };
}

/// Each case of row locks, in a database of its own.
macro_rules! row_lock_cases {
    (on both: $($name:ident)*) => { row_lock_cases! { @mysql $($name)* } };
    (@$mysql:ident $($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::row_kit::run(crate::server::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod $mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::row_kit::run(crate::server::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
    ($($name:ident)*) => { row_lock_cases! { @mysql_thorough $($name)* } };
}

/// The other processes of the tests.
#[test]
fn child_main() {
    use lease::cases::{moved_host, stopped_turns};

    match dlock_testkit::child::role().as_deref() {
        Some(moved_host::ROLE) => moved_host::child(),
        Some(stopped_turns::ROLE) => stopped_turns::child(),
        Some(role) => panic!("no role {role}"),
        // A run of all tests.
        None => {}
    }
}

mod backup;
mod elect;
mod faults;
mod fenced;
mod first_contact;
mod lease;
mod limits;
mod literal;
mod longest_ttl;
mod named_kit;
mod processes;
mod rights;
mod rogue;
mod row;
mod row_kit;
mod server;
mod tls;

/// The cases of named locks that are the same on every server.
#[path = "../../../sql/tests/named/mod.rs"]
mod named;

/// The cases of row locks that are the same on every server.
#[path = "../../../sql/tests/row/mod.rs"]
mod row_cases;
