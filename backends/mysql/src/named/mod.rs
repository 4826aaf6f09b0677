//! Named locks (`GET_LOCK`): each belongs to a session, and ends with it.
//!
//! The algorithm is in `dlock-sql`. This module has the parts that are specific to MySQL and MariaDB. A server keeps named
//! locks in its memory, for all of its databases, and does not replicate them. After a failover nobody holds a lock.

mod dialect;

pub(crate) use self::dialect::refuse_clusters;
use dlock_contract::Result;
use dlock_sql::{NamedLock, Settings};
use dlock_store::{Address, Clock};

use crate::lease::MySql;
use crate::server::{FORM, Server};

/// Opens `mysql://user:password@host:port/database` or `mariadb://…`. Special characters in the account are
/// percent-encoded. `?socket=path` uses a Unix socket. A URL with another host than this one must have
/// `tls=verify` (with `ca`, `cert` and `key`, which are files), `tls=require` or `tls=off`. Only `tls=verify` keeps the
/// password from a rogue server.
///
/// # Errors
/// If the server cannot be reached within five seconds, refuses the account, is a replica or one of several writable nodes;
/// if the table is missing and the account may not create it.
pub async fn open(url: &str, clock: &Clock) -> Result<NamedLock<MySql>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<NamedLock<MySql>> {
    NamedLock::open(MySql::new(server, clock), Settings::of_named(address)?, clock).await
}
