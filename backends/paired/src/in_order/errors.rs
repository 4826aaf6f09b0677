//! Errors that say which of the two stores failed.

use dlock_contract::Error;

/// The same error, told by the store that has this name in the pair.
pub(crate) fn told_by(name: &str, error: Error) -> Error {
    told_after(name, error, true)
}

/// The same, after a request to the other store, which has left something there or not.
pub(super) fn told_after(name: &str, error: Error, nothing_left: bool) -> Error {
    let mut told = Error::new(error.kind().clone(), format!("the {name}: {}", error.message()))
        .with_retryable(error.is_retryable())
        .with_retry_after(error.told_after());
    if let Some(code) = error.code() {
        told = told.with_code(code);
    }
    if nothing_left && !error.may_have_left() {
        told = told.never_sent();
    }
    told.because(error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_contract::ErrorKind;

    use super::*;

    #[test]
    fn the_error_of_a_member_keeps_all_that_it_says() {
        let error = Error::outage("no answer").with_code("OOM").never_sent();
        let told = told_by("gate", error.with_retry_after(Some(Duration::from_secs(2))));
        assert_eq!((told.message(), told.kind()), ("the gate: no answer", &ErrorKind::Outage));
        assert_eq!((told.code(), told.may_have_left()), (Some("OOM"), false));
        assert_eq!((told.told_after(), told.is_retryable()), (Some(Duration::from_secs(2)), true));
        assert!(told_by("gate", Error::outage("x")).may_have_left());
        assert!(told_after("authority", Error::outage("x").never_sent(), false).may_have_left());
        assert!(!told_by("gate", Error::outage("x").with_retryable(false)).is_retryable());
    }
}
