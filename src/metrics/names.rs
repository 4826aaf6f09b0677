//! The bound on the names that series have.

/// The most names of locks that have series of their own. Names that are made at run time must not fill the memory of the
/// exporter.
pub(super) const MOST_NAMES: usize = 1000;

/// The name of all further ones.
pub(super) const OTHER: &str = "other";
