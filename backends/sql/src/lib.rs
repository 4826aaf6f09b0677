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

mod check;
mod connection;
mod dialect;
mod lease;
mod listing;
mod named;
mod row_lock;
mod session_hold;
mod settings;
mod tables;
mod versioned;
mod ways;

pub use check::check;
pub use connection::builder::{Builder, Product, Source};
pub use connection::credentials::{Credentials, Login};
pub use connection::hosts::Hosts;
pub use connection::refused::not_connected;
pub use dialect::{Answer, Cell, Dialect, MarkedSession, Refusal, SessionActivity, SessionMark, Value, WaitQueues};
pub use lease::LeaseRow;
pub use named::{
    LockName, NAMED, NamedAnswer, NamedAsk, NamedDialect, NamedDrawn, NamedLock, NamedWait, NamedWords, READ_WRITE,
    ReadWriteWords, SequenceWords, SessionId,
};
pub use row_lock::{
    Committed, HeldRow, ROWS, RowAsk, RowConnection, RowDialect, RowId, RowLock, RowTransaction, RowWords, Taken,
};
pub use settings::{KEYS, LAYOUT, OPTIONS, Settings};
pub use tables::hex::hex;
pub use tables::queue_name::QueueName;
pub use tables::row_table::{ROW_KEYS, ROW_OPTIONS, RowKey, RowKind, RowTable};
pub use tables::server_table::ServerTable;
pub use tables::server_tables::{TableServer, TableSet, check_tables, prepare_tables};
pub use tables::shedlock::{ShedlockTable, ShedlockWords};
pub use tables::statements::{BREAKS, LOCKS, META};
pub use tables::table_names::{TABLE_PREFIX, TableNames, is_identifier};
pub use tables::words::{Statement, Words};
pub use versioned::{ReadRow, Versioned, VersionedServer};
pub use ways::{SplitNamespace, Way, Ways, way_name};
