//! Locks in PostgreSQL, in one of three ways: rows of a table, each with the end of a lease, which is the default,
//! [advisory locks](named), or [row locks](row) (`SELECT … FOR UPDATE`).
//!
//! The algorithms are those of `dlock-sql`; here is what is PostgreSQL's own.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod fenced;
mod lease;
mod lock_in;
pub mod named;
pub mod row;
mod server;
pub mod versioned;

use std::sync::Arc;

use dlock_contract::{Address, Backend, Clock, Opener, Result};
use dlock_sql::{LeaseRow, Settings, Way, shedlock_table};

pub use self::lease::dialect::Postgres;
pub use self::lock_in::{Transaction, lock_in, try_lock_in};
use self::server::{FORM, Server};

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| Box::pin(open_any(address, clock)));

async fn open_any(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(match server::way_of(&address) {
        Way::Named => Arc::new(named::open_at(&address, clock).await?),
        Way::Row => Arc::new(row::open_at(&address, clock).await?),
        _ => Arc::new(open_at(&address, clock).await?),
    })
}

/// Opens `postgres://user:password@host:port/database`. Special characters in the account are percent-encoded. With
/// `?socket=folder` the connection goes over the Unix socket in that folder. Of several hosts, the one that can be written to
/// is used. A host that is not this one must say `tls=verify` (with `ca`, `cert` and `key`, which are files), `tls=require`
/// or `tls=off`; only the first keeps the password from a rogue server.
///
/// # Errors
/// Where no server can be reached, the account is refused, all servers are read-only, and where a table is missing and may
/// not be made, or is not dlock's.
pub async fn open(url: &str, clock: &Clock) -> Result<LeaseRow<Postgres>> {
    open_at(&Address::parse(url, &FORM)?, clock).await
}

async fn open_at(address: &Address, clock: &Clock) -> Result<LeaseRow<Postgres>> {
    let dialect = Postgres::new(Server::of(address)?, clock).in_shedlock(shedlock_table(address)?);
    LeaseRow::open(dialect, Settings::of(address)?, clock).await
}
