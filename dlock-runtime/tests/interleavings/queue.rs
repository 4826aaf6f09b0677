//! The files of the engine's queue.

#[path = "../../src/queue/cohort_holds.rs"]
mod cohort_holds;
#[path = "../../src/queue/handover.rs"]
mod handover;
#[path = "../../src/queue/join.rs"]
mod join;
#[path = "../../src/queue/key_queue.rs"]
mod key_queue;
#[path = "../../src/queue/local_queue.rs"]
mod local_queue;
#[path = "../../src/queue/overdue.rs"]
mod overdue;
#[path = "../../src/queue/turn.rs"]
mod turn;
#[path = "../../src/queue/waiting.rs"]
mod waiting;

pub(crate) use handover::{Abandon, Content, Handover};
pub(crate) use join::Joined;
pub(crate) use key_queue::{LocalHold, ServedRuntime, TAKEN_UP_WITHIN, TurnRequest};
pub(crate) use local_queue::LocalQueue;
pub(crate) use turn::{NextWaiter, Turn};
pub(crate) use waiting::Waiting;

/// How many keys are in use.
pub(crate) fn keys(queue: &LocalQueue) -> usize {
    queue.tables().map(|table| table.queues.len()).sum()
}
