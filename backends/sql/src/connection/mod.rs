//! The connections of a store: where they lead, who logs in, what is asked on them.

mod agreement;
pub(crate) mod answer;
pub(crate) mod builder;
pub(crate) mod closed;
pub(crate) mod collisions;
pub(crate) mod credentials;
pub(crate) mod hosts;
pub(crate) mod left_sessions;
pub(crate) mod misread;
pub(crate) mod pending_attempts;
pub(crate) mod pool;
pub(crate) mod refused;
pub(crate) mod session;
pub(crate) mod sweeps;
