//! How late this machine is at the moment, so that a promised bound can be asserted on a busy one.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

static LATE: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

const NAP: Duration = Duration::from_millis(5);

/// Starts to watch, on a thread that naps. If it oversleeps, all other threads may have waited too. Further calls do
/// nothing.
pub fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        thread::spawn(|| {
            loop {
                let before = Instant::now();
                thread::sleep(NAP);
                let late = before.elapsed().saturating_sub(NAP);
                if late > NAP {
                    measured().push((before, late));
                }
            }
        });
    });
}

/// The time by which a bound must be widened for delays since `start`, if [`watch`] was called before.
///
/// A grant passes through three processes (the server, our thread, the caller's runtime), each of which may wait for a
/// core; a quarter of a second is what an idle machine never needs.
pub fn since(start: Instant) -> Duration {
    let late = measured();
    let worst = late.iter().rev().take_while(|(when, _)| *when >= start).map(|(_, late)| *late).max();
    Duration::from_millis(250) + worst.unwrap_or_default() * 3
}

fn measured() -> MutexGuard<'static, Vec<(Instant, Duration)>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}
