//! The promises of locks that live in a session of the server.

use std::time::Duration;

use dlock_contract::{Expiry, Fencing, Profile, TtlRange, WakeStyle};

/// `told` is the longest time from the end of a session until its holders hear of it. After a failover to a replica that lags,
/// tokens rise only if its clock is not behind.
pub(crate) fn profile(kind: &'static str, longest: Duration, told: Duration) -> Profile {
    let second = Duration::from_secs(1);
    Profile::new(kind, TtlRange::new(second, longest).in_steps_of(second)).with(|session| {
        session.expiry = Expiry::Session { told };
        session.expires_alone = false;
        session.fencing = Fencing::MonotonicUnlessFailover;
        session.wake = WakeStyle::Grant;
        session.takeover_delay = second;
        // The server serves its waiters first. A newcomer may be quicker than one of them, as between two of its waits, but not
        // again and again.
        session.holds_in_a_row = Some(8);
    })
}
