//! Constant values of options: checked while the program is compiled, because they are in a static.

use std::time::Duration;

use dlock_values::LONGEST;

/// A duration that an attribute could have said in quotes.
///
/// # Panics
/// If it is zero or longer than 100 years: in a static, where this is used, that is an error of the compiler.
#[doc(hidden)]
#[must_use]
pub const fn fixed_time(time: Duration) -> Duration {
    assert!(!time.is_zero(), "this duration is zero");
    assert!(
        time.as_secs() < LONGEST.as_secs() || (time.as_secs() == LONGEST.as_secs() && time.subsec_nanos() == 0),
        "this duration is longer than 100 years"
    );
    time
}

/// A count that an attribute could have said as a number.
///
/// # Panics
/// If it is zero: in a static, where this is used, that is an error of the compiler.
#[doc(hidden)]
#[must_use]
pub const fn fixed_count(count: u32) -> u32 {
    assert!(count > 0, "this count is zero: expected 1 or more");
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_those_of_the_attribute() {
        assert_eq!(fixed_time(LONGEST), LONGEST);
        assert_eq!(fixed_time(Duration::from_nanos(1)), Duration::from_nanos(1));
        assert_eq!(fixed_count(1), 1);
        for wrong in [Duration::ZERO, LONGEST + Duration::from_nanos(1)] {
            assert!(std::panic::catch_unwind(|| fixed_time(wrong)).is_err(), "{wrong:?}");
        }
        assert!(std::panic::catch_unwind(|| fixed_count(0)).is_err());
    }
}
