//! One hold, from its grant to its end: its validity, renewal, loss, release, and passing it on inside of the process.
//!
//! Owns the handle of an installed store ([`store`]), the state of a hold ([`tenure`]), the thread that renews and gives
//! back later ([`renewal`], [`cleanup`]), and what all holds of a registry share ([`shared`]).
//!
//! May know the queue, into which it passes turns and holds; nothing of guards, of waiting for a lock or of the user's code.

pub(crate) mod abandon;
mod attend;
pub(crate) mod circuit_breaker;
pub(crate) mod cleanup;
pub(crate) mod cohort;
pub(crate) mod duties;
pub(crate) mod findings;
pub(crate) mod hold_state;
pub(crate) mod jitter;
pub(crate) mod listeners;
pub(crate) mod loss;
pub(crate) mod loss_cause;
pub(crate) mod release;
pub(crate) mod release_to_next;
pub(crate) mod renewal;
pub(crate) mod renewal_schedule;
pub(crate) mod session_watch;
pub(crate) mod settling;
pub(crate) mod shared;
pub(crate) mod store;
pub(crate) mod tenure;
