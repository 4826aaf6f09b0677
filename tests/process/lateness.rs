//! How late this machine is at the moment, so that a promised bound can be asserted on a busy one.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

static LATE: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

const NAP: Duration = Duration::from_millis(5);

/// Starts to watch, on a thread that naps. If it oversleeps, all other threads may have waited too.
pub(crate) fn watch() {
    thread::spawn(|| {
        loop {
            let before = Instant::now();
            thread::sleep(NAP);
            let late = before.elapsed().saturating_sub(NAP);
            if late > NAP {
                LATE.lock().unwrap().push((before, late));
            }
        }
    });
}

/// The time by which a bound must be widened for delays since `start`.
///
/// A grant passes through three processes (the server, our thread, the caller's runtime), each of which may wait for a
/// core; a quarter of a second is what an idle machine never needs.
pub(crate) fn since(start: Instant) -> Duration {
    let late = LATE.lock().unwrap();
    let worst = late.iter().rev().take_while(|(when, _)| *when >= start).map(|(_, late)| *late).max();
    Duration::from_millis(250) + worst.unwrap_or_default() * 3
}
