//! Locks in rows of a table: the way for most. A lock outlives a restart of the server and of its holder's connection.
//!
//! The algorithm is that of `dlock-sql`; here is what is MySQL's and MariaDB's own.

pub(crate) mod dialect;
mod room;
mod shedlock;
pub(crate) mod tables;

use dlock_contract::{Address, Clock, Result};
use dlock_sql::{LeaseRow, Settings, shedlock_table};

pub use self::dialect::MySql;
use crate::server::{FORM, Server};

/// Opens `mysql://user:password@host:port/database` or `mariadb://…`, as [`named::open`](crate::named::open) does, with
/// lease rows.
///
/// # Errors
/// Where the server cannot be reached, refuses the account or is read-only, and where a table is missing and may not be
/// made, or is not dlock's.
pub async fn open(url: &str, clock: &Clock) -> Result<LeaseRow<MySql>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<LeaseRow<MySql>> {
    let dialect = MySql::new(server, clock).in_shedlock(shedlock_table(address)?);
    LeaseRow::open(dialect, Settings::of(address)?, clock).await
}
