//! Times and tokens as the tables hold them.

use std::time::Duration;

/// The highest token. A JSON number or a script cannot hold a larger number exactly.
pub(crate) const MOST_TOKEN: u64 = 1 << 53;

/// A time in whole microseconds. The profile refuses other times.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
