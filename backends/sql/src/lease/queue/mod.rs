//! The wait queues of lease rows: a caller that found the row taken waits for a named lock of the server, in order, instead of
//! polling the row.
//!
//! The session that has the named lock has the *turn*. It takes the row, and keeps the turn until the row is free again on
//! the server's disk. So the next waiter finds the row free. The row alone decides who holds the lock: if a turn or its
//! session is lost, the order suffers and nothing else. A caller that cannot wait in a queue polls.
//!
//! From the bottom to the top: `work`, `recent`, `leaving`; `sessions` of a runtime; the state of a `waiter`; a `turn`, in
//! which holds live; the `wait` of a waiter; the `wait_queue`s of a store; `passing` holds on.

mod leaving;
mod passing;
mod recent;
mod sessions;
mod turn;
mod wait;
mod wait_queue;
mod waiter;
mod work;

pub(crate) use passing::{pass, release};
pub(crate) use recent::Contention;
pub(crate) use turn::{HOLDS_PER_TURN, granting_server_of, turn_of};
pub(crate) use wait_queue::{QueueAnswer, WaitQueue};
pub(crate) use waiter::{AttemptGuard, HolderState, Place};
