//! The words of a server in the statements about named locks.

use std::time::Duration;

/// The server's words about named locks.
#[derive(Clone, Copy, Debug)]
pub struct NamedWords {
    /// The words before the changes of a row that is there already.
    pub on_conflict: &'static str,
    /// Whether the session of a row holds the lock of that row.
    pub is_held: &'static str,
    /// The expressions that ask for the lock with the number `$7` and tell who answers, if one statement can ask and draw the
    /// token.
    pub try_lock: Option<[&'static str; 2]>,
    /// The words of read and write locks, if the server has locks that several sessions hold together.
    pub read_write: Option<ReadWriteWords>,
    /// The longest silence after which the server can end a session.
    pub longest_ttl: Duration,
}

/// The server's words about locks that readers hold together.
#[derive(Clone, Copy, Debug)]
pub struct ReadWriteWords {
    /// The expression that asks for the lock with the number `$7` together with others.
    pub try_read: &'static str,
    /// Whether the session of a row in [`READ_WRITE`](super::READ_WRITE) holds the lock of that row, in the row's mode.
    pub is_held: &'static str,
}
