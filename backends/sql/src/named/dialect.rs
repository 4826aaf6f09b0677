//! One server's part of named locks.

use std::time::Duration;

use dlock_contract::{Health, LockKey, Mode, Result};

use super::name::LockName;
use super::words::NamedWords;
use crate::dialect::{Dialect, Value};
use crate::tables::words::Statement;

/// One server's part of named locks, on top of [`Dialect`].
pub trait NamedDialect: Dialect {
    /// The server's words in the statements.
    fn named_words(&self) -> NamedWords;

    /// The lock of a key: a hash of it, or, if the key is [literal](LockKey::literal), its very text.
    ///
    /// # Errors
    /// For a literal key that is no name of a lock in this server.
    fn lock_name(&self, key: &LockKey) -> Result<LockName>;

    /// Connects, sets the session up, and makes sure that a lock taken here excludes other clients.
    fn connect_named(&self) -> impl Future<Output = Result<(Self::Conn, SessionId)>> + Send;

    /// Makes the tables if they are missing, and checks those that exist. Refuses a server whose named locks other
    /// clients do not see.
    fn prepare_named(&self, conn: &mut Self::Conn) -> impl Future<Output = Result<()>> + Send;

    /// The server's version, its part and its settings, if it can still be written to.
    fn named_health(&self, conn: &mut Self::Conn) -> impl Future<Output = Result<Health>> + Send;

    /// Another table of dlock's settings that has this row: the same locks are taken with it, and their tokens are counted apart.
    /// `way` is the name and the word of the row. Asked over a connection of its own.
    fn other_named_table(
        &self,
        conn: &mut Self::Conn,
        way: (&str, &str),
    ) -> impl Future<Output = Result<Option<String>>> + Send;

    /// Makes the server end the session after this much silence, in whole seconds, and no earlier.
    fn end_after(&self, conn: &mut Self::Conn, silence: Duration) -> impl Future<Output = Result<()>> + Send;

    /// Asks for a lock, and waits for it that long, in one request: a second request would begin at the end of the
    /// queue. [`Mode::Read`] shares the lock with other readers; it is used only if [`NamedWords::read_write`] has
    /// words for it. After a wait the server ends the session when it is silent, until [`end_after`](Self::end_after)
    /// sets how long it may be silent.
    fn lock(
        &self,
        conn: &mut Self::Conn,
        session: SessionId,
        lock: (&LockName, Mode),
        wait: NamedWait,
    ) -> impl Future<Output = sqlx::Result<NamedAnswer>> + Send;

    /// Whether the statement of [`NamedWords::sequence`], if there is one, can ask for this lock.
    fn takes_at_once(&self, lock: &LockName) -> bool {
        let _ = lock;
        true
    }

    /// Frees a lock that was granted in this mode. False if this session did not hold it in this mode.
    fn unlock(
        &self,
        conn: &mut Self::Conn,
        lock: &LockName,
        mode: Mode,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Asks for an exclusive lock without waiting, and draws a token under it by a statement with
    /// [`if_granted`](NamedWords::if_granted). Both leave in one message. The token has a result of its own: if it cannot be
    /// drawn, the answer to the request is known all the same.
    fn lock_and_draw(
        &self,
        conn: &mut Self::Conn,
        session: SessionId,
        ask: NamedAsk<'_>,
    ) -> impl Future<Output = sqlx::Result<NamedDrawn>> + Send {
        let _ = (conn, session, ask);
        std::future::ready(Err(sqlx::Error::Protocol("the server does not take both in one message".into())))
    }

    /// Which session of the server answers on this connection.
    fn who_answers(&self, conn: &mut Self::Conn) -> impl Future<Output = sqlx::Result<i64>> + Send;

    /// Ends another session of this account, if it lives.
    fn end_session(&self, conn: &mut Self::Conn, number: i64) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Which of these sessions still hold their locks, in one statement, asked from another session.
    fn hold_all(
        &self,
        conn: &mut Self::Conn,
        holds: &[(LockName, SessionId)],
    ) -> impl Future<Output = sqlx::Result<Vec<bool>>> + Send;
}

/// A session, as the server names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// Its number. A server may give it to a later session again.
    pub number: i64,
    /// The start of the session in the server's time, where the server reports it for other sessions; else zero.
    pub began: i64,
}

/// For how long a request waits for a lock.
#[derive(Clone, Copy, Debug)]
pub struct NamedWait {
    /// The longest wait. Zero: the request does not wait.
    pub time: Duration,
    /// The limit on silence after the wait. Beyond it the server ends the session.
    pub silence: Duration,
}

impl NamedWait {
    /// No wait.
    pub const NONE: Self = Self { time: Duration::ZERO, silence: Duration::ZERO };
}

/// A request for a lock and its token in one message.
#[derive(Clone, Copy, Debug)]
pub struct NamedAsk<'a> {
    /// The lock.
    pub lock: &'a LockName,
    /// Whether this session frees the lock first. If another session waits for it in the server, that session gets it, and
    /// this request is refused.
    pub frees_first: bool,
    /// The statement that draws the token.
    pub stamp: &'a Statement,
    /// The values of that statement.
    pub values: &'a [Value<'a>],
}

/// The answer to the request for the lock, and the token. The answer is `None` if the lock was to be freed first, but
/// this session did not hold it.
pub type NamedDrawn = (Option<NamedAnswer>, sqlx::Result<Option<i64>>);

/// The answer to a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedAnswer {
    /// This session has the lock.
    Granted,
    /// Another session has the lock, even after the wait.
    Taken,
    /// The server ended the wait: somebody killed the statement, or the server is out of memory.
    Interrupted,
    /// The answer came from another session than the one that was asked: there is a pooler between.
    Elsewhere,
}
