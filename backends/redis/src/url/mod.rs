//! The parts of a Redis URL.

pub(crate) mod hosts;
pub(crate) mod settings;
