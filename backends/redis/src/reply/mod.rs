//! The server's answers: how they are read, and which error each failure becomes.

pub(crate) mod fault;
pub(crate) mod read;
