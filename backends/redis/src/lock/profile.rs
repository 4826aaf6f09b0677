//! The profile of one Redis server.

use std::time::Duration;

use dlock_contract::{Fencing, Profile, TtlRange, WakeStyle};

pub(crate) fn profile() -> Profile {
    let ttl = TtlRange::new(Duration::from_millis(10), Duration::from_secs(10 * 365 * 86_400));
    Profile::new("redis", ttl.in_steps_of(Duration::from_millis(1))).with(|redis| {
        redis.fencing = Fencing::MonotonicUnlessFailover;
        (redis.fair, redis.read_write, redis.permits) = (true, true, true);
        redis.wake = WakeStyle::Grant;
        // A silent first waiter costs one short grant and one poll.
        redis.takeover_delay = Duration::from_secs(2);
    })
}
