//! How late this machine is at the moment, so that a promised bound can be asserted on a busy one.

use std::fs;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

static MEASURED: Mutex<Measured> = Mutex::new(Measured { naps: Vec::new(), waits: Vec::new() });

struct Measured {
    /// When a nap began that took too long, and by how much.
    naps: Vec<(Instant, Duration)>,
    /// For how long programs of this machine had waited for a core or for the disk, since its start.
    waits: Vec<(Instant, Duration)>,
}

const NAP: Duration = Duration::from_millis(5);

/// The kernel's count of waits is read once in this many naps.
const NAPS: u32 = 10;

/// An idle machine never needs that long. A grant passes through three processes (the server, our thread, the caller's runtime), each of
/// which may wait for a core.
const USUAL: Duration = Duration::from_millis(250);

/// Starts to watch, on a thread that naps. If it oversleeps, all other threads may have waited too. Further calls do
/// nothing.
pub fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        measured().waits.push((Instant::now(), waited()));
        thread::spawn(|| {
            for nap in 1_u32.. {
                let before = Instant::now();
                thread::sleep(NAP);
                let late = before.elapsed().saturating_sub(NAP);
                if late > NAP {
                    measured().naps.push((before, late));
                }
                if nap.is_multiple_of(NAPS) {
                    let now = (Instant::now(), waited());
                    measured().waits.push(now);
                }
            }
        });
    });
}

/// The time by which a bound must be widened for delays since `start`, if [`watch`] was called before.
pub fn since(start: Instant) -> Duration {
    let measured = measured();
    let late = measured.naps.iter().rev().take_while(|(when, _)| *when >= start).map(|(_, late)| *late).max();
    USUAL + late.unwrap_or_default() * 3
}

/// Fails if more has passed since `start` than is promised, and than this machine was late.
///
/// If programs of this machine waited for a core or for the disk for this long meanwhile, the failure says that nothing
/// is proven. `cargo xtask test` runs such a test again, alone.
#[track_caller]
pub fn assert_within(promised: Duration, start: Instant, what: &str) {
    let took = start.elapsed();
    let allowed = promised + since(start);
    if took > allowed {
        let waited = waited_since(start);
        let verdict = if is_explained(took, promised, waited) { ": nothing is proven" } else { "" };
        panic!(
            "{what}: it took {took:?}, promised are {promised:?} and allowed {allowed:?}. \
             Programs of this machine waited for {waited:?} meanwhile{verdict}"
        );
    }
}

/// The end of a failure's text, for what only happens where somebody did not act for so long. If programs of this machine have
/// waited as long since `start`, nothing is proven.
#[must_use]
pub fn verdict(start: Instant, idle: Duration) -> &'static str {
    if waited_since(start) >= idle { ": programs of this machine waited so long, so nothing is proven" } else { "" }
}

/// Whether waits of programs are long enough to explain a delay.
fn is_explained(took: Duration, promised: Duration, waited: Duration) -> bool {
    took <= promised + USUAL + waited
}

/// For how long programs of this machine have waited since then, for a core or for the disk.
fn waited_since(start: Instant) -> Duration {
    let measured = measured();
    let before = measured.waits.iter().rev().find(|(when, _)| *when <= start).or(measured.waits.first());
    before.map_or(Duration::ZERO, |(_, before)| waited().saturating_sub(*before))
}

/// The same since the start of the machine. Zero if its kernel does not count.
fn waited() -> Duration {
    let kinds = ["cpu", "io"].map(|kind| fs::read_to_string(format!("/proc/pressure/{kind}")).unwrap_or_default());
    kinds.iter().filter_map(|text| total(text)).sum()
}

/// The microseconds in `some avg10=0.00 avg60=0.00 avg300=0.00 total=4711`.
fn total(pressure: &str) -> Option<Duration> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.parse().ok().map(Duration::from_micros)
}

fn measured() -> MutexGuard<'static, Measured> {
    MEASURED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_kernels_count_of_waits_is_read() {
        let text = "some avg10=97.88 avg60=85.77 avg300=57.61 total=316193600\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total(text), Some(Duration::from_micros(316_193_600)));
        assert_eq!(total(""), None);
    }

    #[test]
    fn a_delay_is_explained_by_waits_that_are_as_long() {
        assert!(is_explained(SECOND * 3, SECOND * 2, SECOND));
        assert!(!is_explained(SECOND * 4, SECOND * 2, SECOND));
    }

    #[test]
    fn a_bound_that_is_kept_fails_nothing_and_another_one_is_named() {
        watch();
        let start = Instant::now();
        assert_within(SECOND * 60, start, "the grant");
        let early = start.checked_sub(SECOND * 60).unwrap();
        let panic = thread::spawn(move || assert_within(SECOND, early, "the grant")).join().unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with("the grant: it took ") && text.contains("promised are 1s"), "{text}");
    }
}
