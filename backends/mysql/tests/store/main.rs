//! All ways on real servers: MariaDB and MySQL. Lease rows have a folder; row locks have `row_cases`; the other files are about named locks.

/// Each case on each kind of server, in a database of its own.
macro_rules! named_cases {
    ($($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::named_kit::run(crate::server::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::named_kit::run(crate::server::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

/// Each case of row locks on each kind of server, in a database of its own.
macro_rules! row_lock_cases {
    ($($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::row_kit::run(crate::server::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::row_kit::run(crate::server::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

/// The other processes of the tests.
#[test]
fn child_main() {
    use lease::cases::moved_host;

    match dlock_testkit::child::role().as_deref() {
        Some(moved_host::ROLE) => moved_host::child(),
        Some(role) => panic!("no role {role}"),
        // A run of all tests.
        None => {}
    }
}

mod backup;
mod elect;
mod faults;
mod fenced;
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
