//! Turns within this process: of all callers that want one key of one store, one asks. The others wait behind it.
//!
//! Keyed by the full key: Spring Integration striped such queues over 256 buckets, and foreign keys blocked each other
//! (its issue 11146). A turn is the right to ask; an exclusive hold keeps it until its release, unless the store hands
//! its locks on. There the hold leaves the turn to a caller whose place in the store's line the hold's release cannot
//! take for it. As long as the release can take that place, nobody gets the turn.

mod handover;
mod join;
mod key_queue;
mod local_queue;
mod turn;
mod waiting;

pub(crate) use handover::{Abandon, CohortState, Content, Handover};
pub(crate) use join::Joined;
pub(crate) use key_queue::{LocalHold, Refusal, ServedRuntime, TurnRequest};
pub(crate) use local_queue::LocalQueue;
pub(crate) use turn::{Next, Turn};
pub(crate) use waiting::{Known, Waiting};

#[cfg(test)]
mod tests;
