//! Row locks (`SELECT … FOR UPDATE`): each hold is a transaction, and the body may work inside of it.
//!
//! The algorithm is that of `dlock-sql`; here is what is PostgreSQL's own. A row is locked on one server, and on no standby: after
//! a failover nobody holds anything, and what was not committed is gone with the lock.

mod dialect;
mod table;

use std::sync::Arc;

use dlock_contract::Result;
use dlock_sql::{HeldRow, RowLock, RowTable, Settings};
use dlock_store::{Address, Clock};

use crate::lease::dialect::Postgres;
use crate::server::{FORM, Server};

/// The transaction of a hold.
pub type RowTransaction = dlock_sql::RowTransaction<Postgres>;

/// The connection of a transaction; `&mut *connection` is an `&mut sqlx::PgConnection`.
pub type RowConnection<'a> = dlock_sql::RowConnection<'a, Postgres>;

/// The transaction in which a hold of this store lives.
pub type Held = HeldRow<Postgres>;

/// Opens the same URLs as [`open`](crate::open), for row locks. With `?table=orders&column=id` the rows are those of a table of
/// your own. It needs PostgreSQL 14 or later.
///
/// # Errors
/// As [`open`](crate::open), behind a pooler that gives each transaction another session, and for a column without a unique
/// index.
pub async fn open(url: &str, clock: &Clock) -> Result<RowLock<Postgres>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<RowLock<Postgres>> {
    let table = RowTable::of(address, &server.tables)?;
    RowLock::open(Postgres::new(server, clock), table, Settings::of_row(address)?, clock).await
}

/// The transaction of a hold, for the body's own statements.
///
/// # Errors
/// As [`RowTransaction::of`](dlock_sql::RowTransaction::of).
pub fn transaction(held: Arc<Held>) -> Result<RowTransaction> {
    RowTransaction::of(held)
}
