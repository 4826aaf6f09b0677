//! The servers and the account, the errors, the paths and the data of nodes, and the requests about nodes alone.

pub(crate) mod cluster;
pub(crate) mod exists;
pub(crate) mod fault;
pub(crate) mod four_letter;
#[cfg(feature = "tls")]
mod handshake;
pub(crate) mod node_data;
pub(crate) mod paths;
