//! A manual clock that goes on with the machine's.

use std::pin::pin;
use std::time::{Duration, Instant};

use dlock_store::Clock;

const STEP: Duration = Duration::from_millis(5);

/// Moves a manual clock with the machine's while a real server is asked. A store waits by its clock before it tries again, so
/// without this a try that fails on a busy machine is the last one, and the test waits for ever.
pub async fn in_real_time<T>(clock: &Clock, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        let began = Instant::now();
        match tokio::time::timeout(STEP, &mut work).await {
            Ok(output) => return output,
            Err(_) => clock.advance(began.elapsed()),
        }
    }
}
