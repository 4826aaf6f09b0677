//! Ends the sleeps of the suspend-proof clock, on our thread.

use dlock_contract::BootInstant;

use crate::clock::Clock;

/// Ends the sleeps of the suspend-proof clock when they are over.
pub(crate) async fn drive(clock: &Clock) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let alarm = Alarm::new();
    loop {
        let next = clock.sleepers().wake_due(clock.now());
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let wait = alarm.wait(next);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let wait = tick(clock, next);
        tokio::select! {
            () = clock.sleepers().earlier() => {}
            () = wait => {}
        }
    }
}

/// A timer of the kernel that goes on in suspend; tokio's timer stops there and would report a loss late.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
struct Alarm(Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>);

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Alarm {
    #[expect(
        deprecated,
        reason = "its successor is unsafe for the sake of borrowed descriptors; this one is owned, which is sound"
    )]
    fn new() -> Self {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        Self(timer.ok().and_then(|timer| tokio::io::unix::AsyncFd::new(timer).ok()))
    }

    async fn wait(&self, until: Option<BootInstant>) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let Some(until) = until else { return std::future::pending().await };
        let nanos = until.as_nanos().max(1);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX) as _,
                tv_nsec: (nanos % 1_000_000_000) as _,
            },
        };
        let armed = self.0.as_ref().filter(|timer| timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec).is_ok());
        match armed {
            // Setting the timer anew clears what had fired, so the readiness is always that of this setting.
            Some(timer) => {
                if let Ok(mut ready) = timer.readable().await {
                    ready.clear_ready();
                }
            }
            // A kernel without the timer: look at the clock often enough.
            None => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn tick(clock: &Clock, until: Option<BootInstant>) {
    let Some(until) = until else { return std::future::pending().await };
    // Short naps, since these timers stand still in suspend and the clock does not.
    let nap = until.since(clock.now()).min(std::time::Duration::from_millis(200));
    tokio::time::sleep(nap.max(std::time::Duration::from_millis(1))).await;
}
