//! dlock's tables and ShedLock's: their names, their rows, their statements, and how they are made and checked.

pub(crate) mod hex;
pub(crate) mod numbers;
pub(crate) mod queue_name;
pub(crate) mod row;
pub(crate) mod row_table;
pub(crate) mod schema_version;
pub(crate) mod server_table;
pub(crate) mod server_tables;
pub(crate) mod shedlock;
pub(crate) mod statements;
pub(crate) mod table_names;
pub(crate) mod words;
