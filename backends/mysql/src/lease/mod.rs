//! Lease rows: locks in rows of a table. This way fits most users: a lock outlives a restart of the server, and the loss of
//! its holder's connection.
//!
//! The algorithm is in `dlock-sql`. This module has the parts that are specific to MySQL and MariaDB.

pub(crate) mod dialect;
mod queue;
mod shedlock;
pub(crate) mod tables;

use dlock_contract::Result;
use dlock_sql::{LeaseRow, Settings, ShedlockTable};
use dlock_store::{Address, Clock};

pub use self::dialect::MySql;
use crate::server::{FORM, Server};

/// Opens `mysql://user:password@host:port/database` or `mariadb://…`, as [`named::open`](crate::named::open) does, with
/// lease rows.
///
/// # Errors
/// If the server cannot be reached, refuses the account or is read-only; if a table is missing and the account may not
/// create it; if a table has other columns.
pub async fn open(url: &str, clock: &Clock) -> Result<LeaseRow<MySql>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<LeaseRow<MySql>> {
    let dialect = MySql::new(server, clock).in_shedlock(ShedlockTable::of(address, None)?);
    LeaseRow::open(dialect, Settings::of(address)?, clock).await
}
