//! Named locks: advisory locks of a session, which end with it.
//!
//! The algorithm is that of `dlock-sql`; here is what is PostgreSQL's own. Advisory locks live in the memory of one server, for
//! one of its databases, and in no standby: after a failover nobody holds anything.

mod dialect;

use dlock_contract::{Address, Clock, Result};
use dlock_sql::{NamedLock, Settings};

use crate::lease::dialect::Postgres;
use crate::server::{FORM, Server};

/// Opens the same URLs as [`open`](crate::open), for advisory locks. It needs PostgreSQL 14 or later, which ends silent
/// sessions.
///
/// # Errors
/// As [`open`](crate::open), and behind a pooler that gives each transaction another session.
pub async fn open(url: &str, clock: &Clock) -> Result<NamedLock<Postgres>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<NamedLock<Postgres>> {
    let settings = Settings::of_named(address)?;
    NamedLock::open(Postgres::new(server, clock), settings, clock).await
}
