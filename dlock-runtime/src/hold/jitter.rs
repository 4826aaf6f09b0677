//! Random pauses between two requests, so that callers which failed together do not ask together.

use std::time::Duration;

/// A random time up to a bound that doubles with each attempt, from `first` to `most`: full jitter spreads a herd best.
pub(crate) fn full_jitter(attempt: u32, first: Duration, most: Duration) -> Duration {
    let bound = first.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(most);
    bound.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_growing_bound() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(5));
        for attempt in [0, 1, 5, 31, 32, u32::MAX] {
            let bound = first.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(most);
            assert!((0..200).all(|_| full_jitter(attempt, first, most) <= bound));
        }
        let longest = (0..500).map(|_| full_jitter(20, first, most)).max().unwrap();
        assert!(longest > Duration::from_secs(4), "{longest:?}");
    }
}
