//! Named locks: the server knows them by a name or a number, and each belongs to a session.
//!
//! A lock ends with its session, at once, and with a restart of the server. dlock sets the server's limit so that it
//! ends a session that is silent for the ttl. So a host that vanished does not hold for ever. Waiting is one request:
//! the server grants in its own order, and the grant is the answer.
//!
//! Locks that are free when they are asked for share a few [sessions]; each waiter has one of its own. All sessions live
//! on our own thread, driven by tasks, so a caller that is not polled stops nobody. A [monitor] sees within 300 ms and a round
//! trip that a session has ended, by whatever way.
//!
//! The notes of the holders and requests to break a hold are in a table, one row for each key. The row also draws the fencing
//! tokens, durably, or a [sequence] of the server does.

mod backend;
mod context;
mod dialect;
mod drive;
mod driver;
mod end_sessions;
mod exchange;
mod failure;
mod grant;
mod held;
mod holder_statements;
mod inspect;
mod left_sessions;
mod monitor;
mod name;
mod read_write;
mod requests;
mod sequence;
mod session_status;
mod shared;
mod shared_session;
mod shared_sessions;
mod statements;
mod store;
mod sweep;
mod words;

pub use dialect::{NamedAnswer, NamedAsk, NamedDialect, NamedDrawn, NamedWait, SessionId};
pub use name::LockName;
pub use read_write::READ_WRITE;
pub use statements::NAMED;
pub use store::NamedLock;
pub use words::{NamedWords, ReadWriteWords, SequenceWords};
