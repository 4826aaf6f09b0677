//! Row locks (`SELECT … FOR UPDATE`): each hold is a transaction, and the body may work inside of it.
//!
//! The algorithm is that of `dlock-sql`; here is what is MySQL's and MariaDB's own. A row is locked in the memory of one server,
//! and in no replica: after a failover nobody holds anything, and what was not committed is gone with the lock.

mod dialect;
mod table;

use std::sync::Arc;

use dlock_contract::Result;
use dlock_sql::{HeldRow, RowLock, RowTable, Settings};
use dlock_store::{Address, Clock};

use crate::lease::MySql;
use crate::server::{FORM, Server};

/// The transaction of a hold.
pub type RowTransaction = dlock_sql::RowTransaction<MySql>;

/// The connection of a transaction; `&mut *connection` is an `&mut sqlx::MySqlConnection`.
pub type RowConnection<'a> = dlock_sql::RowConnection<'a, MySql>;

/// The transaction in which a hold of this store lives.
pub type Held = HeldRow<MySql>;

/// Opens the same URLs as [`named::open`](crate::named::open), for row locks. With `?table=orders&column=id` the rows are those of
/// a table of your own.
///
/// # Errors
/// As [`named::open`](crate::named::open), and for a table without transactions or a column without a unique index.
pub async fn open(url: &str, clock: &Clock) -> Result<RowLock<MySql>> {
    let address = Address::parse(url, &FORM)?;
    open_at(Server::of(&address)?, &address, clock).await
}

pub(crate) async fn open_at(server: Server, address: &Address, clock: &Clock) -> Result<RowLock<MySql>> {
    let table = RowTable::of(address, &server.tables)?;
    RowLock::open(MySql::new(server, clock), table, Settings::of_row(address)?, clock).await
}

/// The transaction of a hold, for the body's own statements.
///
/// # Errors
/// As [`RowTransaction::of`](dlock_sql::RowTransaction::of).
pub fn transaction(held: Arc<Held>) -> Result<RowTransaction> {
    RowTransaction::of(held)
}
