//! Errors that say which of the two stores failed.

use dlock_contract::{Error, ErrorKind};

use crate::in_order::InOrder;

impl InOrder {
    /// An error of the first store, with its name.
    pub(crate) fn error_of_first(&self, error: Error) -> Error {
        error_from(self.kind.names()[0], error)
    }

    /// An error of a wait in the first store. If a first store that is down is bypassed, the next attempt goes on without it.
    pub(crate) fn error_of_wait_in_first(&self, error: Error) -> Error {
        let error = self.error_of_first(error);
        if self.bypass.is_some() && is_down(&error) { error.with_retryable(true) } else { error }
    }

    /// An error of the second store, with its name.
    pub(crate) fn error_of_second(&self, error: Error) -> Error {
        error_from(self.kind.names()[1], error)
    }
}

/// Whether this error means that the store is down. Other errors are answers, and would be the same later.
pub(super) fn is_down(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Outage | ErrorKind::NotPrimary)
}

/// Adds the name of the store that failed.
fn error_from(name: &str, error: Error) -> Error {
    error_after(name, error, true)
}

/// Adds the name of the store. `nothing_left`: an earlier request to the other store left nothing there.
pub(super) fn error_after(name: &str, error: Error, nothing_left: bool) -> Error {
    let mut named = Error::new(error.kind().clone(), format!("the {name}: {}", error.message()))
        .with_retryable(error.is_retryable())
        .with_retry_after(error.told_after());
    if let Some(code) = error.code() {
        named = named.with_code(code);
    }
    if nothing_left && !error.may_have_left() {
        named = named.never_sent();
    }
    named.because(error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_contract::ErrorKind;

    use super::*;

    #[test]
    fn the_error_of_a_member_keeps_all_that_it_says() {
        let error = Error::outage("no answer").with_code("OOM").never_sent();
        let named = error_from("gate", error.with_retry_after(Some(Duration::from_secs(2))));
        assert_eq!((named.message(), named.kind()), ("the gate: no answer", &ErrorKind::Outage));
        assert_eq!((named.code(), named.may_have_left()), (Some("OOM"), false));
        assert_eq!((named.told_after(), named.is_retryable()), (Some(Duration::from_secs(2)), true));
        assert!(error_from("gate", Error::outage("x")).may_have_left());
        assert!(error_after("authority", Error::outage("x").never_sent(), false).may_have_left());
        assert!(!error_from("gate", Error::outage("x").with_retryable(false)).is_retryable());
    }
}
