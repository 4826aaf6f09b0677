//! Lease rows on real servers: MariaDB and MySQL. What the two do in ways of their own is tested on both. The cases of all SQL
//! servers run on MariaDB, and on MySQL with `cargo xtask test --all` alone: the statements are the same, and the suite and the
//! trials of processes run them on MySQL each time.

/// Each case of all SQL servers, in a database of its own.
macro_rules! row_cases {
    ($($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::named_kit::run(crate::server::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod mysql_thorough {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::named_kit::run(crate::server::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

/// The same, with a server that the case may disturb.
macro_rules! cases_with_own_server {
    (on both: $($name:ident)*) => { cases_with_own_server! { @mysql_alone $($name)* } };
    (@$mysql:ident $($name:ident)*) => {
        mod mariadb_alone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::lease::kit::run_alone(crate::server::Kind::MariaDb, |server, database| Box::pin(super::$name(server, database))).await;
            })*
        }
        mod $mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::lease::kit::run_alone(crate::server::Kind::MySql, |server, database| Box::pin(super::$name(server, database))).await;
            })*
        }
    };
    ($($name:ident)*) => { cases_with_own_server! { @mysql_alone_thorough $($name)* } };
}

/// The same, with a server whose wall clock the case sets.
macro_rules! cases_with_clock {
    ($($name:ident)*) => {
        mod mariadb_clock {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::lease::kit::run_with_clock(crate::server::Kind::MariaDb, |clock, database| Box::pin(super::$name(clock, database))).await;
            })*
        }
        mod mysql_clock_thorough {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::lease::kit::run_with_clock(crate::server::Kind::MySql, |clock, database| Box::pin(super::$name(clock, database))).await;
            })*
        }
    };
}

/// The same, with a database on a disk of some megabytes.
macro_rules! cases_on_small_disk {
    ($($name:ident)*) => {
        mod mariadb_disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::lease::kit::run_on_small_disk(crate::server::Kind::MariaDb, |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod mysql_disk_thorough {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::lease::kit::run_on_small_disk(crate::server::Kind::MySql, |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

mod failover;
mod hosts;
mod kit;
mod lookups;
mod rights;
mod settings;
mod tables;
mod wait_queues;
mod ways;

/// The cases that are the same on every server.
#[path = "../../../../sql/tests/cases/mod.rs"]
pub(crate) mod cases;
