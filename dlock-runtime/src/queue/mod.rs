//! Turns within this process. Of all callers that want one key of one store, one asks the store. The others wait behind
//! it.
//!
//! Owns the right to ask (a [`Turn`]), the waiters behind it ([`Waiting`]), the hold or answer that one caller passes to
//! the next with the turn ([`Handover`]), and what callers leave that are not polled ([`Overdue`]). May know claims and holds as the contract defines them; no store
//! and no tenure.

mod cohort_holds;
mod handover;
mod join;
mod key_queue;
mod local_queue;
mod overdue;
mod turn;
mod waiting;

pub(crate) use cohort_holds::CohortHolds;
pub(crate) use handover::{Abandon, CohortState, Content, Handover};
pub(crate) use join::Joined;
pub(crate) use key_queue::{KnownState, LocalHold, ServedRuntime, TAKEN_UP_WITHIN, TurnRequest, Won};
pub(crate) use local_queue::LocalQueue;
pub(crate) use overdue::{LONGEST_RELEASE, LONGEST_REQUEST, Overdue};
pub(crate) use turn::{NextWaiter, Turn};
pub(crate) use waiting::Waiting;

#[cfg(test)]
mod tests;
