//! The waiting room of a lease row: callers that found the row taken wait in a named lock of the server, in order, instead of
//! polling the row.
//!
//! The waiter in the room takes the row, and stays in the room until the row is free again on the server's disk. So the next
//! one finds it free. The row alone decides who holds the lock: if a room or its session is lost, the order suffers and
//! nothing else. A caller that cannot wait in the room polls.
//!
//! From the bottom to the top: `work`, `recent`, `leaving`; `sessions` of a runtime; the state of a `waiter`; a `visit`, in
//! which holds live; how a waiter `stand`s; the `waiting_room` of a store; `passing` holds on.

mod leaving;
mod passing;
mod recent;
mod sessions;
mod stand;
mod visit;
mod waiter;
mod waiting_room;
mod work;

pub(crate) use passing::{pass, release};
pub(crate) use recent::Outlook;
pub(crate) use visit::{MOST_HOLDS, granting_server_of, inside_of};
pub(crate) use waiter::{RowTurn, Ticket, Told};
pub(crate) use waiting_room::{RoomAnswer, WaitingRoom};
