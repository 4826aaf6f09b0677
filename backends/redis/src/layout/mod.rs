//! The names and values of locks in Redis, as bytes.

pub(crate) mod marker;
pub(crate) mod name;
pub(crate) mod slots;
pub(crate) mod token;
pub(crate) mod units;
pub(crate) mod value;
