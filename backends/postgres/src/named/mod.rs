//! Named locks: advisory locks of a session, which end with it.
//!
//! The algorithm is in `dlock-sql`. This module has the parts that are specific to PostgreSQL. A server keeps advisory locks in its
//! memory, for each database, and no standby has them. After a failover nobody holds a lock.

mod dialect;
mod tokens;

use dlock_contract::Result;
use dlock_sql::{NamedLock, Settings};
use dlock_store::{Address, Clock};

use crate::lease::dialect::Postgres;
use crate::server::{FORM, Server};

/// Opens the same URLs as [`open`](crate::open), for advisory locks. It needs PostgreSQL 14 or later, which ends silent
/// sessions.
///
/// # Errors
/// As [`open`](crate::open). Also fails behind a pooler that gives each transaction another session.
pub async fn open(url: &str, clock: &Clock) -> Result<NamedLock<Postgres>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<NamedLock<Postgres>> {
    let settings = Settings::of_named(address)?;
    NamedLock::open(Postgres::new(server, clock), settings, clock).await
}
