//! The Lua that runs in the server, and how it is called. Each script is one indivisible step.

pub(crate) mod call;
pub(crate) mod clock;
pub(crate) mod exclusive;
pub(crate) mod lua;
pub(crate) mod queue;
pub(crate) mod shared;
pub(crate) mod together;
pub(crate) mod try_once;
