//! All ways on a real PostgreSQL: lease rows, advisory locks and row locks.

/// Each case in a database of its own.
macro_rules! row_cases {
    ($($name:ident)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::kit::run(stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

/// The same, with a server that the case may disturb.
macro_rules! cases_with_own_server {
    ($($name:ident)*) => {
        mod postgres_alone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::kit::run_alone(|server, database| Box::pin(super::$name(server, database))).await;
            })*
        }
    };
}

/// The same, with a server whose wall clock the case sets.
macro_rules! cases_with_clock {
    ($($name:ident)*) => {
        mod postgres_clock {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::kit::run_with_clock(|clock, database| Box::pin(super::$name(clock, database))).await;
            })*
        }
    };
}

/// The same, with a database on a disk of some megabytes.
macro_rules! cases_on_small_disk {
    ($($name:ident)*) => {
        mod postgres_disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::kit::run_on_small_disk(|database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

/// Named locks are tested in the same way.
macro_rules! named_cases {
    ($($name:ident)*) => { row_cases! { $($name)* } };
}

/// Row locks too.
macro_rules! row_lock_cases {
    ($($name:ident)*) => { row_cases! { $($name)* } };
}

/// The other processes of the tests.
#[test]
fn child_main() {
    match dlock_testkit::child::role().as_deref() {
        Some(cases::moved_host::ROLE) => cases::moved_host::child(),
        Some(cases::stopped_turns::ROLE) => cases::stopped_turns::child(),
        Some(role) => panic!("no role {role}"),
        // A run of all tests.
        None => {}
    }
}

mod advisory;
mod eighteen;
mod ended_waits;
mod failover;
mod fenced;
mod first_contact;
mod full_log;
mod hosts;
mod index;
mod kit;
mod lock_in;
mod named_kit;
mod passwords;
mod pieces;
mod pooler;
mod readers;
mod rights;
mod row;
mod row_kit;
mod schemas;
mod sequence;
mod settings;
mod tables;
mod tls;
mod wait_queues;

/// The cases that are the same on every server.
#[path = "../../../sql/tests/cases/mod.rs"]
mod cases;

/// The cases of named locks that are the same on every server.
#[path = "../../../sql/tests/named/mod.rs"]
mod named;

/// The cases of row locks that are the same on every server.
#[path = "../../../sql/tests/row/mod.rs"]
mod row_cases;
