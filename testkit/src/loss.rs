//! The end of a hold whose network is cut, seen from outside.

use std::pin::pin;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(10);

/// Waits for the loss of a hold. Returns it, and the time after `start` until which the hold counted itself as held.
///
/// The answer to a renewal may be on its way at a cut, and be read after it. So one look right after the cut is too early.
pub async fn until_lost<T>(
    start: Instant,
    remaining: impl Fn() -> Duration,
    lost: impl Future<Output = T>,
) -> (T, Duration) {
    let (mut lost, mut end) = (pin!(lost), Duration::ZERO);
    loop {
        // In this order: the end is not counted too late.
        let now = start.elapsed();
        let left = remaining();
        if !left.is_zero() {
            end = now + left;
        }
        if let Ok(lost) = tokio::time::timeout(LOOK, &mut lost).await {
            return (lost, end);
        }
    }
}
