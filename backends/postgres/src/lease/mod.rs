//! Lease rows: locks in rows of a table. This module has the parts that are specific to PostgreSQL.

pub(crate) mod dialect;
mod pooler;
mod queue;
mod shedlock;
pub(crate) mod tables;
