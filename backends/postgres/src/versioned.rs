//! Version columns in your own tables: read a row, work, and write only if nobody has written the row in between. No lock is
//! taken.
//!
//! ```
//! use dlock::versioned::postgres::Versioned;
//! use dlock::{Conflict, optimistic};
//! use sqlx::{Row, PgConnection};
//!
//! const STOCK: Versioned = Versioned::new("stock", "id", "version");
//!
//! # #[derive(Debug)]
//! enum OrderError {
//!     SoldOut,
//!     Database(sqlx::Error),
//!     Lock(dlock::Error),
//! }
//!
//! impl Conflict for OrderError {
//!     fn is_conflict(&self) -> bool {
//!         matches!(self, Self::Lock(error) if error.is_conflict())
//!     }
//! }
//! # impl From<dlock::Error> for OrderError { fn from(error: dlock::Error) -> Self { Self::Lock(error) } }
//! # impl From<sqlx::Error> for OrderError { fn from(error: sqlx::Error) -> Self { Self::Database(error) } }
//!
//! /// Runs again if another writer was faster, ten times at most.
//! #[optimistic(retries = 10)]
//! async fn deduct(conn: &mut PgConnection, id: i64, n: i64) -> Result<i64, OrderError> {
//!     let Some(read) = STOCK.read(conn, "remaining", id).await? else { return Err(OrderError::SoldOut) };
//!     let left = read.row.try_get::<i64, _>(0)? - n;
//!     if left < 0 {
//!         return Err(OrderError::SoldOut);
//!     }
//!     STOCK.write(conn, id, read.version, "remaining = $1", |query| query.bind(left)).await?;
//!     Ok(left)
//! }
//! ```
//!
//! The work between the read and the write may run several times, so it must be safe to repeat.

use dlock_contract::Error;
use dlock_sql::VersionedServer;
use sqlx::Postgres;
use sqlx::postgres::PgQueryResult;

use crate::server::fault::fault;

/// A table of PostgreSQL with a column for the version of each row.
pub type Versioned = dlock_sql::Versioned<VersionColumns>;

/// How PostgreSQL keeps a version column.
#[derive(Debug)]
pub enum VersionColumns {}

impl VersionedServer for VersionColumns {
    type Client = Postgres;

    const IS_NUMBERED: bool = true;

    const NOW: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

    fn changed(done: &PgQueryResult) -> u64 {
        done.rows_affected()
    }

    fn fault(error: sqlx::Error) -> Error {
        fault(error)
    }
}
