//! The parts of Consul's HTTP API that locks need: sessions, keys, transactions.

pub(crate) mod kv;
pub(crate) mod session;
pub(crate) mod txn;
