//! Private instances of real servers on 127.0.0.1.
//!
//! A server is a [`Recipe`]: which program, with which arguments, and how to ask it whether it is there.
//! Everything else (folder, port, log, waiting, signals, the end) is written once, in [`Instance`].
//! [`shared`] gives every test of a process the same set.

mod as_shipped;
mod certificates;
mod changed;
mod consul;
mod data_folder;
mod etcd;
mod etcd_cluster;
mod etcd_peers;
mod etcd_tls;
mod folder;
mod instance;
mod leftovers;
mod mariadb;
mod mysql;
mod pgbouncer;
mod pins;
mod ports;
mod postgres;
mod postgres_wire;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod redis_tls;
mod shared;
mod small_disk;
mod sql_wire;
mod vdso_clock;
mod wall_clock;
mod zookeeper;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::Result;

pub use crate::find::{Tree, cache_folder, find_program};
pub use as_shipped::as_shipped;
pub use certificates::Certificates;
pub use consul::Consul;
pub use etcd::Etcd;
pub use etcd_cluster::EtcdCluster;
pub use etcd_tls::EtcdTls;
pub use instance::Instance;
pub use mariadb::MariaDb;
pub use mysql::MySql;
pub use pgbouncer::PgBouncer;
pub use pins::{CHROMIUM, GO, How, PINS, Pin};
pub use ports::claim as free_port;
pub use postgres::{Postgres, PostgresRelease};
pub use redis::{Make, Redis, redlock_url, wait_until_followed};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::{RedisSentinels, Sentinel};
pub use redis_tls::RedisTls;
pub use shared::{SharedSet, shared};
pub use small_disk::on_small_disk;
pub use vdso_clock::VdsoClock;
pub use wall_clock::WallClock;
pub use zookeeper::ZooKeeper;

/// The parts that differ between kinds of servers.
pub trait Recipe: Send + Sync + 'static {
    /// One short word for folders and messages.
    fn name(&self) -> &'static str;

    /// Does it refuse to run as root? Then it runs as `nobody` for root, and its folder is theirs.
    fn refuses_root(&self) -> bool {
        false
    }

    /// Fills the empty folder before the first start; most servers need nothing.
    fn prepare(&self, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// The options of its command that are not the server's defaults and are there for the sake of tests, by their beginnings. Their
    /// reasons stand beside them. [`as_shipped`] leaves them out.
    fn eased(&self) -> &'static [&'static str] {
        &[]
    }

    /// The signal by which an operator ends it. It closes its connections by itself then.
    fn end_signal(&self) -> Signal {
        Signal::TERM
    }

    /// How to start it in the foreground. A missing program is an error that names the command that installs it.
    fn command(&self, folder: &Path, port: u16) -> Result<Command>;

    /// One request in the server's own plain language, with a deadline of its own.
    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String>;

    /// One attempt to learn whether it serves, and the last step of its set-up if there is one.
    fn check(&self, addr: SocketAddr) -> io::Result<()>;

    /// The address as clients write it.
    fn url(&self, port: u16) -> String;
}
