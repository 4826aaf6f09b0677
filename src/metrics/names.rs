//! The bound on the values that a label has.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The most values of one label that have series of their own. Names that are made at run time must not fill the memory of the
/// exporter.
const MOST_NAMES: usize = 1000;

/// The value of all further ones.
const OTHER: &str = "other";

/// The values of one label so far.
#[derive(Default)]
pub(super) struct Names(Mutex<HashSet<Box<str>>>);

impl Names {
    /// The name, or `other` if there were too many before it.
    pub(super) fn bounded<'a>(&self, name: &'a str) -> &'a str {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_series = names.contains(name) || names.len() < MOST_NAMES && names.insert(name.into());
        if has_series { name } else { OTHER }
    }
}
