//! Both ways on real servers: MariaDB and MySQL. Lease rows have a folder; the other files are about `GET_LOCK`.

/// Each case on each kind of server, in a database of its own.
macro_rules! cases {
    ($($name:ident)*) => {
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::store::run(crate::server::Kind::MariaDb, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
        mod mysql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                crate::store::run(crate::server::Kind::MySql, stringify!($name), |database| Box::pin(super::$name(database))).await;
            })*
        }
    };
}

mod cycle;
mod dropped;
mod faults;
mod fenced;
mod inspect;
mod lease;
mod rights;
mod rogue;
mod server;
mod session_end;
mod store;
mod tls;
mod waits;
