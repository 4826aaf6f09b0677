//! Locks by `GET_LOCK` of MySQL and MariaDB: a lock belongs to a session and ends with it.
//!
//! Every hold, and every waiter, has a connection of its own; it is shared with nobody while it holds a lock. The
//! server is told to end a session that is silent for the ttl, so a host that vanished does not hold for ever. Waiting
//! is one request: the server grants in its own order and the grant is the answer.
//!
//! A session that ends, by whatever way, frees its lock at once. A [monitor] sees that within 300 ms and a round trip.
//!
//! Named locks live in the memory of one server, for all of its databases, and in no replica: after a failover nobody
//! holds anything. The fencing tokens are in a table (`dlock_named`, made at the first start), with one row for every
//! key that was ever locked; rows are never deleted, and none need be. The same rows are read by [inspect], and carry an
//! operator's request to break a hold.

mod backend;
mod inspect;
mod link;
mod monitor;
mod name;
mod session;
mod store;
mod table;

pub use self::store::GetLock;
