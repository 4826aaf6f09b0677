//! The connections of one store: one for each runtime, and the requests that go over them.

pub(crate) mod admission;
pub(crate) mod asked;
pub(crate) mod check;
pub(crate) mod compare_and_delete;
pub(crate) mod connection;
pub(crate) mod forms;
pub(crate) mod look_ahead;
pub(crate) mod looks;
pub(crate) mod open;
pub(crate) mod order;
pub(crate) mod pool;
pub(crate) mod renewal_connection;
pub(crate) mod renewals;
pub(crate) mod requests;
pub(crate) mod rights;
pub(crate) mod stale;
pub(crate) mod unanswered;
pub(crate) mod watch;
