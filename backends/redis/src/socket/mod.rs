//! Connections to one server: host name, socket, TLS, and the limit on the size of an answer.

pub(crate) mod bounded;
pub(crate) mod ended;
pub(crate) mod first_step;
pub(crate) mod options;
pub(crate) mod server;
pub(crate) mod tls;
