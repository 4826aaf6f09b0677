//! Times and tokens as the tables hold them.

use std::time::Duration;

/// No counter of ours gives more: a JSON number or a script holds no larger one exactly.
pub(crate) const MOST_TOKEN: u64 = 1 << 53;

/// Whole microseconds. The profile refuses times that are none.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
