//! How a case ends.

use std::time::Duration;

use dlock_contract::{Error, ErrorKind};

/// Added to every bound that a store declares, because the machine may be busy with something else.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

/// `Ok`: the promise was kept.
pub(crate) type Tested<T = ()> = Result<T, Stop>;

/// Why a case ended before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(String),
    Skipped(String),
    NotApplicable(String),
    /// A lease ended before the case could use it. Such a run proves nothing.
    Late,
    /// The store gave no answer for a while, or in the time that a short lease leaves it. Such a run proves nothing either.
    Unanswered(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        if *error.kind() == ErrorKind::Outage && error.is_retryable() {
            return Self::Unanswered(error);
        }
        Self::Failed(format!("the backend failed: {error}"))
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::tested::Stop::Failed(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;

pub(crate) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
