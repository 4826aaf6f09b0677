//! A dialect is one server's part of the algorithm: it connects, runs statements and classifies errors.

use std::fmt;
use std::time::Duration;

use dlock_contract::{Error, Health, Result};
use futures::future::BoxFuture;

use crate::tables::queue_name::QueueName;
use crate::tables::shedlock::ShedlockWords;
use crate::tables::words::{Statement, Words};

/// One server's part of the algorithm.
pub trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// A connection, which is one session of the server. Dropping it closes the socket.
    type Conn: Send + 'static;

    /// The server's words in the statements.
    fn words(&self) -> &Words;

    /// The hosts and their ports, or the socket, and the database. No account.
    fn host(&self) -> String;

    /// The words for ShedLock's table, if locks are taken there.
    fn shedlock(&self) -> Option<&ShedlockWords> {
        None
    }

    /// Connects, sets the session up, and makes sure that a lock taken here excludes somebody. Also returns the id of
    /// the server: any text that a failover changes and a restart does not.
    fn connect(&self) -> impl Future<Output = Result<(Self::Conn, String)>> + Send;

    /// Makes the tables if they are missing, and looks at what is there. Returns the full name of ShedLock's table, or nothing.
    fn prepare(&self, conn: &mut Self::Conn) -> impl Future<Output = Result<String>> + Send;

    /// The proof for other sessions that it is this one. `None` if a connection is not a session, as behind some poolers.
    fn mark(&self, conn: &mut Self::Conn) -> impl Future<Output = sqlx::Result<Option<SessionMark>>> + Send;

    /// Ends another session, if it lives and has its proof.
    fn end_marked(
        &self,
        conn: &mut Self::Conn,
        session: &SessionMark,
    ) -> impl Future<Output = sqlx::Result<MarkedSession>> + Send;

    /// The activity of a session, asked from another one; `None` if the server does not report it.
    fn activity(
        &self,
        conn: &mut Self::Conn,
        session: i64,
    ) -> impl Future<Output = sqlx::Result<Option<SessionActivity>>> + Send;

    /// Runs one statement, in a transaction of its own.
    fn run(
        &self,
        conn: &mut Self::Conn,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<Answer>> + Send;

    /// The wait queues of this server. `None` if a connection is not a session of it, as behind some poolers. The
    /// answer counts after [`prepare`](Self::prepare).
    fn wait_queues(&self) -> Option<&dyn WaitQueues<Self::Conn>>;

    /// One round trip, to find out whether the server has ended the session.
    fn ping(&self, conn: &mut Self::Conn) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The server's version, its part and its settings, if it can still be written to.
    fn health(&self, conn: &mut Self::Conn) -> impl Future<Output = Result<Health>> + Send;

    /// Says goodbye, so that the server does not count an aborted client.
    fn close(&self, conn: Self::Conn) -> impl Future<Output = ()> + Send;

    /// The class of an error.
    fn refusal(&self, error: &sqlx::Error) -> Refusal;

    /// The server's error as an error of the contract. It shows neither the account nor the password.
    fn fault(&self, error: sqlx::Error) -> Error;
}

/// How a server keeps wait queues: each is a named lock, and the session that has it has the turn.
pub trait WaitQueues<Conn>: Send + Sync {
    /// Sets a session up that waits in queues and keeps its turn while its holds last. The server must not end it for
    /// its silence, and must notice when its client is gone. Returns the scope of the table for the names of queues.
    fn set_up<'a>(&'a self, conn: &'a mut Conn) -> BoxFuture<'a, sqlx::Result<String>>;

    /// The scope of the table (database or schema) for the names of queues.
    fn scope<'a>(&'a self, conn: &'a mut Conn) -> BoxFuture<'a, sqlx::Result<String>>;

    /// Whether somebody has the turn. Asked over a session that is in no queue.
    fn is_taken<'a>(&'a self, conn: &'a mut Conn, queue: &'a QueueName) -> BoxFuture<'a, sqlx::Result<bool>>;

    /// The longest wait of one message. A session that asks again goes to the end of the queue.
    fn longest_wait(&self) -> Duration;

    /// Joins the queue and waits for the turn at most this long, in one message without the statement that takes the
    /// row: if the client is gone, some servers end the wait and go on with the rest of the message. False if another
    /// session still has the turn.
    fn take_turn<'a>(
        &'a self,
        conn: &'a mut Conn,
        queue: &'a QueueName,
        wait: Duration,
    ) -> BoxFuture<'a, sqlx::Result<bool>>;

    /// Ends the turn and leaves the queue. False if the session did not have the turn.
    fn leave<'a>(&'a self, conn: &'a mut Conn, queue: &'a QueueName) -> BoxFuture<'a, sqlx::Result<bool>>;
}

/// A session, with its proof. A number alone proves nothing: after a restart of the server, or of its container, it may be a
/// stranger's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMark {
    /// Its number in the server.
    pub number: i64,
    /// A mark that no other session of this number has.
    pub proof: String,
}

/// A session, after it was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedSession {
    /// There is no such session.
    Gone,
    /// It was there, and ends.
    Ends,
    /// It is of an account that the program had before, and this account may not see it or may not end it.
    OfAnotherAccount,
}

/// The activity of a session, as another session sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionActivity {
    /// A statement runs.
    Runs,
    /// Idle since the state with this number. If the number has risen by more than one, a statement has run in between.
    Idle(i64),
}

/// The errors that the algorithm treats in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The row is there already.
    Duplicate,
    /// The server undid the whole statement, because of others that ran beside it. The same statement may be sent again.
    Undone,
    /// Another session keeps the row locked for longer than a statement takes.
    RowLocked,
    /// The session has ended, or nothing is known of it.
    SessionEnded,
    /// Any other refusal. The session goes on.
    Other,
}

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A number.
    Int(i64),
    /// A number, or nothing.
    Maybe(Option<i64>),
    /// A text.
    Text(&'a str),
    /// A text, or nothing.
    MaybeText(Option<&'a str>),
    /// Bytes, such as an owner.
    Bytes(&'a [u8]),
}

/// A value that a request takes with it.
#[derive(Clone)]
pub(crate) enum OwnedValue {
    Text(String),
    Int(i64),
}

impl OwnedValue {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Int(number) => Value::Int(*number),
        }
    }
}

/// A column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A number; a truth value is 0 or 1.
    Int(i64),
    /// A text, or bytes.
    Bytes(Vec<u8>),
}

/// The result of a statement.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// How many rows it changed.
    pub changed: u64,
    /// The token, where the server returns it beside the count of rows.
    pub token: Option<i64>,
    /// The rows that it returned.
    pub rows: Vec<Vec<Cell>>,
}

impl Cell {
    /// The number; `None` if the cell has no number.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// The text; empty if there is none.
    #[must_use]
    pub fn text(&self) -> &str {
        if let Self::Bytes(bytes) = self { std::str::from_utf8(bytes).unwrap_or_default() } else { "" }
    }

    /// Whether it is a number other than zero.
    #[must_use]
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Int(number) if *number != 0)
    }
}

impl Answer {
    /// The token of a statement that granted a lock.
    #[must_use]
    pub fn granted(&self) -> Option<i64> {
        match self.rows.first() {
            Some(row) => row.first()?.int(),
            None => self.token.filter(|_| self.changed > 0),
        }
    }
}
