//! The form of a Redis URL, and its options.

pub(crate) mod form;
pub(crate) mod settings;
