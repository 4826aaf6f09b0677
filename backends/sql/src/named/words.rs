//! The words of a server in the statements about named locks.

use std::time::Duration;

/// The server's words about named locks.
#[derive(Clone, Copy, Debug)]
pub struct NamedWords {
    /// The words before the changes of a row that is there already.
    pub on_conflict: &'static str,
    /// Whether the session of a row holds the lock of that row.
    pub is_held: &'static str,
    /// The condition behind that of the statement that draws a token, by which it reads no row unless the request for the lock
    /// in the same message was granted. `None` if the server does not take both in one message.
    pub if_granted: Option<&'static str>,
    /// The words of a server that draws tokens from a sequence. If there is none, a row draws them.
    pub sequence: Option<SequenceWords>,
    /// The words of read and write locks, if the server has locks that several sessions hold together.
    pub read_write: Option<ReadWriteWords>,
    /// The longest silence after which the server can end a session.
    pub longest_ttl: Duration,
}

/// The words of a server whose sequence draws a token without a commit to disk, in one statement with the request for the lock.
#[derive(Clone, Copy, Debug)]
pub struct SequenceWords {
    /// The expression that asks for the lock with the number `$7`.
    pub try_lock: &'static str,
    /// The expression that frees it.
    pub unlock: &'static str,
    /// The expression for the number of the answering session.
    pub who: &'static str,
    /// The name of the sequence, as that of a table.
    pub name: &'static str,
}

/// The server's words about locks that readers hold together.
#[derive(Clone, Copy, Debug)]
pub struct ReadWriteWords {
    /// The expression that asks for the lock with the number `$7` together with others.
    pub try_read: &'static str,
    /// Whether the session of a row in [`READ_WRITE`](super::READ_WRITE) holds the lock of that row, in the row's mode.
    pub is_held: &'static str,
}
