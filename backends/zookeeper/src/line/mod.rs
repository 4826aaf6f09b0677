//! The line of one lock: the names of its nodes, and who stands where.

mod contender;
mod order;

pub(crate) use contender::{Contender, Kind, Layout};
pub(crate) use order::{Line, Sight, slot_name};
