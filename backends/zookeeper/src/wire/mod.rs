//! The servers, the account and the errors; what stands at which path; the smallest requests.

pub(crate) mod cluster;
pub(crate) mod data;
pub(crate) mod fault;
#[cfg(feature = "tls")]
mod handshake;
pub(crate) mod paths;
pub(crate) mod standing;
pub(crate) mod words;
