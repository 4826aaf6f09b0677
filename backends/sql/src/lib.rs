//! Locks in SQL servers: one algorithm for each way of locking, for every server that has a [`Dialect`].
//!
//! `lease/` keeps a lock in a row with a lease. `named/` keeps it in a session of the server, and `row_lock/` in a transaction
//! that keeps a row locked. The parts that they share are beside them and know
//! none of them: the `dialect`, the `statements`, connections, the way in which a namespace is locked.
//! `versioned` locks nothing: it compares and sets a version column of the user's own table.
//!
//! This crate is no store. It knows no client of a server; a dialect runs the statements.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod builder;
mod check;
mod collisions;
mod credentials;
mod dialect;
mod hex;
mod hosts;
mod lease;
mod listing;
mod named;
mod numbers;
mod pending_attempts;
mod pool;
mod room_name;
mod row;
mod row_lock;
mod schema_version;
mod server_table;
mod server_tables;
mod session;
mod session_mark;
mod settings;
mod shedlock;
mod silence;
mod statements;
mod sweeps;
mod table_names;
mod versioned;
mod watched_holds;
mod ways;
mod words;

pub use builder::{Builder, Product, Source};
pub use check::check;
pub use credentials::{Credentials, Login};
pub use dialect::{Answer, Cell, Dialect, Refusal, Rooms, Statement, Value};
pub use hex::hex;
pub use hosts::Hosts;
pub use lease::LeaseRow;
pub use named::{
    LockName, NAMED, NamedAnswer, NamedAsk, NamedDialect, NamedDrawn, NamedLock, NamedWait, NamedWords, READ_WRITE,
    ReadWriteWords, SequenceWords, SessionId,
};
pub use room_name::RoomName;
pub use row_lock::{
    Committed, HeldRow, ROW_KEYS, ROW_OPTIONS, ROWS, RowAsk, RowConnection, RowDialect, RowId, RowKey, RowKind,
    RowLock, RowTable, RowTransaction, RowWords, Taken,
};
pub use server_table::ServerTable;
pub use server_tables::{TableServer, TableSet, check_tables, prepare_tables};
pub use session_mark::SessionMark;
pub use settings::{KEYS, LAYOUT, OPTIONS, Settings, is_identifier};
pub use shedlock::{ShedlockTable, ShedlockWords};
pub use silence::SessionActivity;
pub use statements::{BREAKS, LOCKS, META};
pub use table_names::{TABLE_PREFIX, TableNames};
pub use versioned::{ReadRow, Versioned, VersionedServer};
pub use ways::{Way, Ways, way_name};
pub use words::Words;
