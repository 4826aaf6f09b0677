//! The clock that the processes of one host share.

use dlock_contract::{BootInstant, Error, ErrorKind, Result};
use dlock_store::Clock;

/// The current time, on the process's clock and as the file stores it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// On this process's clock.
    pub(super) at: BootInstant,
    /// As it is written into the file: nanoseconds since the host's start.
    pub(super) stored: i64,
}

/// Reads the shared clock, and knows the boot of the host that it counts from.
#[derive(Debug)]
pub(super) struct Time {
    clock: Clock,
    boot: String,
    /// How far this process's clock is ahead of the host's, in nanoseconds: a container may have it shifted.
    shift: i64,
}

impl Time {
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The boot of the host that the clock counts from.
    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    /// Whether all locks are free after a restart of the host.
    pub(super) fn knows_boot(&self) -> bool {
        cfg!(any(target_os = "linux", target_os = "android"))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn of(clock: &Clock) -> Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
            // Without it, a lock from before a restart would look like a live one.
            let need = "a readable /proc/sys/kernel/random/boot_id".into();
            Error::new(ErrorKind::Unsupported { need }, "the host does not say when it was started").because(error)
        })?;
        // Absent in kernels that cannot shift the clock.
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Ok(Self { clock: clock.clone(), boot: boot.trim().to_owned(), shift: shift(&offsets) })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn of(clock: &Clock) -> Result<Self> {
        Ok(Self { clock: clock.clone(), boot: "wall".into(), shift: 0 })
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn now(&self) -> Result<Stamp> {
        let at = self.clock.now();
        let stored = i64::try_from(at.as_nanos()).ok().and_then(|nanos| nanos.checked_sub(self.shift));
        stored.map(|stored| Stamp { at, stored }).ok_or_else(unusable)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn now(&self) -> Result<Stamp> {
        let at = self.clock.now();
        let stored = i64::try_from(self.clock.wall_ms()).ok().and_then(|ms| ms.checked_mul(1_000_000));
        stored.map(|stored| Stamp { at, stored }).ok_or_else(unusable)
    }
}

fn unusable() -> Error {
    Error::new(ErrorKind::Internal, "the clock shows a time from which no lease can be counted")
}

/// How far the boot clock is shifted: `/proc/self/timens_offsets` has lines of name, seconds, nanoseconds.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn shift(offsets: &str) -> i64 {
    let boottime = offsets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|name| *name == "boottime")?;
        let seconds: i64 = words.next()?.parse().ok()?;
        let nanos: i64 = words.next()?.parse().ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
    });
    boottime.unwrap_or(0)
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_container_writes_the_hosts_time() {
        assert_eq!(shift("monotonic           0         0\nboottime        3600         5\n"), 3_600_000_000_005);
        assert_eq!(shift("boottime -2 0\n"), -2_000_000_000);
        assert_eq!(shift(""), 0);
        let mut time = Time::of(&Clock::manual()).unwrap();
        let here = time.now().unwrap().stored;
        time.shift = 1000;
        assert_eq!(time.now().unwrap().stored, here - 1000);
    }
}
