//! Locks in rows of a table: the way for most. Here is what is PostgreSQL's own.

pub(crate) mod dialect;
mod room;
mod shedlock;
pub(crate) mod tables;
