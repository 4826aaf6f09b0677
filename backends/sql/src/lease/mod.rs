//! The lease row: a lock is a row with an owner, a token and the end of its lease.
//!
//! It is taken, renewed and freed by one conditional statement each, which commits by itself. So a caller that is dropped at
//! any point leaves no open transaction behind, and the row outlives a restart of the server and of the client.
//!
//! An attempt never deletes a row: a free lock keeps its row and its token. An algorithm that deletes an expired row
//! and inserts a new one can delete a lock that another caller has taken in between.
//!
//! From the bottom to the top: an `attempt`, an `ending` and the `renewals`; the wait [queue] of callers that found the
//! row taken; the `store` with its pools; what the contract asks for.

mod acquire;
mod attempt;
mod backend;
mod ending;
mod exchange;
mod inspect;
mod queue;
mod renewals;
mod store;
mod sweep;

pub use store::LeaseRow;
