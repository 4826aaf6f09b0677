//! Locks in a row of an SQL table: one algorithm, for every server that has a [`Dialect`].
//!
//! A lock is a row with an owner, a token and the end of its lease, all by the server's clock. It is taken, renewed and
//! freed by one conditional statement each, which commits by itself. So a caller that is dropped at any point leaves no
//! open transaction behind, and the row outlives a restart of the server and of the client.
//!
//! An attempt never deletes a row: a free lock keeps its row and its token. Whoever deletes expired rows in order to insert
//! new ones can delete a lock that another caller has taken between the two.
//!
//! This crate is no store. It knows no client of a server; a dialect runs the statements.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod acquire;
mod attempt;
mod backend;
mod dialect;
mod ending;
mod exchange;
mod flights;
mod inspect;
mod named;
mod pool;
mod renewals;
mod room;
mod room_name;
mod row;
mod session;
mod settings;
mod statements;
mod store;
mod sweep;
mod versioned;
mod ways;

pub use dialect::{Answer, Cell, Dialect, Refusal, Rooms, Statement, Value};
pub use named::{LockName, NAMED, NamedAnswer, NamedDialect, NamedLock, NamedWords, SessionId};
pub use room_name::RoomName;
pub use settings::{KEYS, OPTIONS, Settings};
pub use statements::{BREAKS, LOCKS, META, Words};
pub use store::LeaseRow;
pub use versioned::{ReadRow, Versioned, VersionedServer};
pub use ways::{Way, Ways, way_name};
