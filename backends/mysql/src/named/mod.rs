//! Named locks (`GET_LOCK`): each belongs to a session, and ends with it.
//!
//! The algorithm is that of `dlock-sql`; here is what is MySQL's and MariaDB's own. Named locks live in the memory of one
//! server, for all of its databases, and in no replica: after a failover nobody holds anything.

mod dialect;

pub(crate) use self::dialect::refuse_clusters;
use dlock_contract::{Address, Clock, Result};
use dlock_sql::{NamedLock, Settings};

use crate::lease::MySql;
use crate::server::{FORM, Server};

/// Opens `mysql://user:password@host:port/database` or `mariadb://…`. Special characters in the account are
/// percent-encoded. With `?socket=path` the connection goes over a Unix socket. A host that is not this one must say
/// `tls=verify` (with `ca`, `cert` and `key`, which are files), `tls=require` or `tls=off`; only the first keeps the
/// password from a rogue server.
///
/// # Errors
/// Where the server cannot be reached within five seconds, refuses the account, is a replica or one of several
/// writable nodes, or where the table is missing and may not be made.
pub async fn open(url: &str, clock: &Clock) -> Result<NamedLock<MySql>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<NamedLock<MySql>> {
    NamedLock::open(MySql::new(server, clock), Settings::of_named(address)?, clock).await
}
