//! The wait queue of one lock: the names of its nodes, and their order.

mod contender;
mod wait_queue;

pub(crate) use contender::{Contender, Layout, NodeMode};
pub(crate) use wait_queue::{Position, WaitQueue, slot_name};
