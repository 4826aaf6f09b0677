//! One server's part of row locks.

use std::time::Duration;

use dlock_contract::{Health, Result};

use crate::dialect::Dialect;
use crate::tables::row_table::{RowKey, RowKind, RowTable};

/// One server's part of row locks, beside its part of all statements.
pub trait RowDialect: Dialect {
    /// The server's words in the statements.
    fn row_words(&self) -> RowWords;

    /// Connects and sets the session up for holds: READ COMMITTED, no limit of the server's own on a statement or a
    /// transaction. The client library must believe that a transaction is open, at all times: what it begins inside of
    /// a hold is then a savepoint, and does not end the hold. Also returns the number of the session, and the id of the
    /// server as [`connect`](Dialect::connect) does.
    fn connect_row(&self) -> impl Future<Output = Result<(Self::Conn, i64, String)>> + Send;

    /// Makes dlock's tables if they are missing, and looks at what is there. Also looks at the table of the rows, and
    /// returns the kind of its keys and, for a user's table, the full name of its column. Refuses a connection that
    /// does not keep its session.
    fn prepare_row(
        &self,
        conn: &mut Self::Conn,
        table: &RowTable,
    ) -> impl Future<Output = Result<(RowKind, String)>> + Send;

    /// The server's version, its part and its settings, if it can still be written to and the tables are as they must be.
    fn row_health(&self, conn: &mut Self::Conn, table: &RowTable) -> impl Future<Output = Result<Health>> + Send;

    /// Lets the server end the session after so much silence, in whole seconds, and no earlier.
    fn end_row_after(&self, conn: &mut Self::Conn, silence: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Begins a transaction and locks the row in it, in one message. [`end_wait`](Self::end_wait) takes back the
    /// settings that this makes for a wait.
    fn take_row(&self, conn: &mut Self::Conn, ask: RowAsk<'_>) -> impl Future<Output = sqlx::Result<Taken>> + Send;

    /// Takes back what [`take_row`](Self::take_row) has set for its wait. Of a row that was taken, it asks the server, whose answer
    /// also says that the session has outlived the answer before.
    fn end_wait(
        &self,
        conn: &mut Self::Conn,
        taken: Taken,
        ttl: Duration,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Whether the session is still in the transaction in which it locked the row. It may end savepoints.
    fn is_in(&self, conn: &mut Self::Conn, id: &RowId) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Whether a statement of the body was refused because its session is in another transaction by now, which may not write.
    fn is_elsewhere(&self, error: &sqlx::Error) -> bool;

    /// Commits. Only after [`is_in`](Self::is_in) said yes.
    fn commit(&self, conn: &mut Self::Conn, id: &RowId) -> impl Future<Output = sqlx::Result<Committed>> + Send;

    /// Rolls back the transaction in which the row was locked, in one message. False: the session was in another one, or in none.
    fn undo(&self, conn: &mut Self::Conn, id: &RowId) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Rolls back, whatever is left of the transaction.
    fn rollback(&self, conn: &mut Self::Conn, id: &RowId) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Which of these holds still live, in one statement, asked from another session.
    fn are_held(&self, conn: &mut Self::Conn, ids: &[RowId]) -> impl Future<Output = sqlx::Result<Vec<bool>>> + Send;

    /// Whether somebody keeps this row locked, asked from another session.
    fn is_locked(
        &self,
        conn: &mut Self::Conn,
        table: &RowTable,
        key: &RowKey,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Whether a transaction whose commit had no answer was committed; `None` if the server does not know.
    fn was_committed(
        &self,
        conn: &mut Self::Conn,
        id: &RowId,
    ) -> impl Future<Output = sqlx::Result<Option<bool>>> + Send;

    /// Ends another session of this account. The server rolls its transaction back.
    fn kill(&self, conn: &mut Self::Conn, session: i64) -> impl Future<Output = sqlx::Result<()>> + Send;
}

/// The server's words about row locks.
#[derive(Clone, Copy, Debug)]
pub struct RowWords {
    /// The words before the changes of a row that is there already.
    pub on_conflict: &'static str,
    /// Whether a hold still lives that is known as `{session}`, `{xact}` and `{hold}`.
    pub is_held: &'static str,
    /// Like `is_held`, for a hold that has no record yet. Its transaction may be the newest of the server.
    pub lives: &'static str,
    /// The words before the `WHERE` of a query that reads no table.
    pub from_nothing: &'static str,
    /// The function before a condition that says whether it is true for any record of a group.
    pub any: &'static str,
    /// The longest silence after which the server can end a session.
    pub longest_ttl: Duration,
}

/// A hold, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowId {
    /// The number of its session.
    pub session: i64,
    /// The number of its transaction, where the server reports it; else zero.
    pub transaction: i64,
    /// The hold id, by which a server may know it beside the transaction.
    pub hold: String,
}

/// A request for a row.
#[derive(Clone, Copy, Debug)]
pub struct RowAsk<'a> {
    /// The table of the row.
    pub table: &'a RowTable,
    /// Which row.
    pub key: &'a RowKey,
    /// The hold id.
    pub hold: &'a str,
    /// Whether readers may keep it together.
    pub is_shared: bool,
    /// The longest wait for the row; `None` does not wait. The server may round it up to whole seconds.
    pub wait: Option<Duration>,
    /// The limit on silence after a wait: then the server ends the session. [`end_wait`](RowDialect::end_wait) raises
    /// the limit to the ttl. Without it, the server would keep the row for a whole ttl for each waiter whose host is
    /// silent.
    pub silence: Duration,
}

/// The answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is done.
    Clean,
    /// It is done, but the session still has a mark of the hold, which would live on with it.
    Marked,
    /// Nothing was committed now, because the session is in another transaction than the one in which it locked the row.
    Elsewhere,
}

/// The answer to a request for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is locked in the transaction of this number.
    Row(i64),
    /// Somebody else keeps it locked, also after the wait. The transaction is to be rolled back.
    Busy,
    /// There is no such row. The transaction is to be rolled back.
    Missing,
}
