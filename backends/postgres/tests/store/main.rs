//! Lease rows on a real PostgreSQL.

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

mod failover;
mod fenced;
mod hosts;
mod kit;
mod passwords;
mod pooler;
mod rights;
mod rooms;
mod schemas;
mod settings;
mod tables;

/// The cases that are the same on every server.
#[path = "../../../sql/tests/cases/mod.rs"]
mod cases;
