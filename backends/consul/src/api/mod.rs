//! Consul's HTTP API, as far as locks need it: sessions, keys, transactions.

pub(crate) mod kv;
pub(crate) mod session;
pub(crate) mod txn;
