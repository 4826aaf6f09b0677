//! The profile of two stores together.

use std::time::Duration;

use dlock_contract::{Error, Profile, Result, RunsOn, TtlRange};

/// The profile of a lock that is taken in two stores: what both stores support. `paired` and `migrating` add expiry, fencing,
/// durability and order.
pub(crate) fn common(kind: &'static str, first: &Profile, second: &Profile) -> Result<Profile> {
    Ok(Profile::new(kind, common_ttl(first.ttl, second.ttl)?).with(|both| {
        both.expires_alone = first.expires_alone && second.expires_alone;
        both.read_write = first.read_write && second.read_write;
        both.permits = first.permits && second.permits;
        both.silent_ttls = first.silent_ttls.max(second.silent_ttls);
        // A waiter may wait for one takeover in each store.
        both.takeover_delay = first.takeover_delay + second.takeover_delay;
        both.max_key_bytes = first.max_key_bytes.min(second.max_key_bytes);
        both.any_key = first.any_key && second.any_key;
        both.wake = first.wake;
        let own_thread = [first.runs_on, second.runs_on].contains(&RunsOn::OwnThread);
        both.runs_on = if own_thread { RunsOn::OwnThread } else { RunsOn::Caller };
    }))
}

/// The ttls that both stores support.
fn common_ttl(one: TtlRange, other: TtlRange) -> Result<TtlRange> {
    let steps = [one.step, other.step].map(|step| step.as_nanos().max(1));
    let step = steps[0] / greatest_divisor(steps[0], steps[1]) * steps[1];
    let min = one.min.max(other.min).as_nanos().div_ceil(step) * step;
    let max = one.max.min(other.max).as_nanos() / step * step;
    if min > max {
        return Err(Error::config(
            "ttl",
            format!(
                "no ttl fits both stores: one supports {:?} to {:?}, the other {:?} to {:?}",
                one.min, one.max, other.min, other.max
            ),
        ));
    }
    let [min, max, step] = [min, max, step].map(duration);
    // A step of one nanosecond is no restriction.
    Ok(TtlRange::new(min, max).in_steps_of(if step.as_nanos() > 1 { step } else { Duration::ZERO }))
}

fn duration(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn greatest_divisor(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_pair_takes_the_ttls_that_both_stores_take() {
        let redis = TtlRange::new(10 * MS, 86_400_000 * MS).in_steps_of(MS);
        let whole = TtlRange::new(2000 * MS, 3_600_000 * MS).in_steps_of(1500 * MS);
        let both = common_ttl(redis, whole).unwrap();
        assert_eq!((both.min, both.max, both.step), (3000 * MS, 3_600_000 * MS, 1500 * MS));
        assert_eq!(common_ttl(whole, redis).unwrap(), both);
        let any = TtlRange::new(20 * MS, 3_600_000 * MS);
        assert_eq!(common_ttl(redis, any).unwrap(), TtlRange::new(20 * MS, 3_600_000 * MS).in_steps_of(MS));
        assert_eq!(common_ttl(any, any).unwrap(), any);
        assert!(common_ttl(TtlRange::new(MS, 10 * MS), whole).is_err());
        // The bounds fit, and no multiple of the step lies between them.
        assert!(common_ttl(TtlRange::new(MS, 2900 * MS), whole).is_err());
    }

    #[test]
    fn a_pair_can_do_what_both_stores_can_do() {
        let ttl = TtlRange::new(MS, 1000 * MS);
        let all = Profile::new("all", ttl).with(|all| {
            (all.read_write, all.permits) = (true, true);
            all.takeover_delay = 2 * MS;
            all.max_key_bytes = 100;
        });
        let some = Profile::new("some", ttl).with(|some| {
            (some.permits, some.any_key, some.expires_alone) = (true, false, false);
            some.takeover_delay = MS;
            some.silent_ttls = 2;
            some.runs_on = RunsOn::OwnThread;
        });
        for [one, other] in [[&all, &some], [&some, &all]] {
            let both = common("both", one, other).unwrap();
            assert_eq!((both.read_write, both.permits, both.any_key, both.expires_alone), (false, true, false, false));
            assert_eq!((both.takeover_delay, both.max_key_bytes), (3 * MS, 100));
            assert_eq!((both.silent_ttls, both.runs_on), (2, RunsOn::OwnThread));
        }
    }
}
