//! Row locks: each hold is a transaction that keeps one row locked (`SELECT … FOR UPDATE`), on a connection of its own.
//!
//! The body may run its own statements inside that very [transaction](RowTransaction). Then the lock and the data end
//! together: the commit frees the row and makes the work final, and every other end of the hold undoes the work.
//!
//! The row is in a table of dlock's, or in a [table of the user's own](RowTable), to which nothing is added: fencing
//! tokens and the notes of holders are kept apart, and are committed apart before the body begins. So a transaction
//! that is rolled back never gives a token twice.
//!
//! The server frees the row when the session ends, and dlock sets its limit so that it ends a session that is silent
//! for the ttl. A renewal is a request on the hold's own session. While a statement of the body runs there, a [monitor]
//! asks over another connection.

mod aside;
mod backend;
mod circle;
mod dialect;
mod ending;
mod held;
mod inspect;
mod life;
mod look;
mod monitor;
mod monitor_connection;
mod record;
mod sessions;
mod settle;
mod shared;
mod statements;
mod store;
mod sweep;
mod taking;
mod transaction;

pub use dialect::{Committed, RowAsk, RowDialect, RowId, RowWords, Taken};
pub use held::HeldRow;
pub use statements::ROWS;
pub use store::RowLock;
pub use transaction::{RowConnection, RowTransaction};
