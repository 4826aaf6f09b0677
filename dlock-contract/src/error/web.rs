//! The answer to the client of a service when a lock fails: for handlers that return [`Error`] as it is.
//!
//! | failure | HTTP | gRPC |
//! | --- | --- | --- |
//! | another caller holds the lock: busy, wait timeout, too many waiters | 423 Locked, `Retry-After` | `UNAVAILABLE` |
//! | this period's run was started already, or every attempt met a conflict | 409 Conflict | `ABORTED` |
//! | the store is down or takes no locks (a replica, a right that lacks), or dlock was shut down | 503 Service Unavailable, `Retry-After` | `UNAVAILABLE` |
//! | the body's own limit ran out | 504 Gateway Timeout | `DEADLINE_EXCEEDED` |
//! | the lock was lost; everything else | 500 Internal Server Error | `INTERNAL` |
//!
//! `Retry-After` is in whole seconds: [`Error::retry_after`], so 5 at most, and 1 if the store reports no time. The
//! answer to the client has neither the key nor the backend. The log has both, with the error's own words: at the level
//! error for an internal error, else at the level debug. Of many internal errors of one kind, one in a second has the level error and
//! says how many were `left_out` before it. A lost lock and a failing store have lines of their own already, so their answers are
//! logged at the level debug too.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::panics::caught;
use crate::error::{Error, ErrorKind, LossCause};

/// The internal errors of each kind: a client that calls a broken handler again and again must not fill the log.
static INTERNAL: Told = Told(Mutex::new(BTreeMap::new()));

/// The time between two lines of the level error of one kind.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// When a line of each kind and cause was written last, and how many were left out since.
struct Told(Mutex<BTreeMap<Kind, (Instant, u64)>>);

/// The kind of an error, and the cause if it is a loss.
type Kind = (&'static str, &'static str);

impl Told {
    /// How many lines were left out before this one; `None` if this one is left out too.
    fn passes(&self, error: &ErrorKind, now: Instant) -> Option<u64> {
        let cause = if let ErrorKind::Lost(cause) = error { cause.as_str() } else { "" };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match told.get_mut(&(error.as_str(), cause)) {
            Some((last, left_out)) if now.saturating_duration_since(*last) < LINE_INTERVAL => {
                *left_out += 1;
                None
            }
            _ => Some(told.insert((error.as_str(), cause), (now, 0)).map_or(0, |(_, left_out)| left_out)),
        }
    }
}

/// The failures that a client of a service can tell apart. Each has its own text.
enum Failure {
    Locked,
    Conflict,
    Down,
    TooLong,
    Fault,
}

impl Failure {
    const fn of(error: &ErrorKind) -> Self {
        match error {
            ErrorKind::Busy | ErrorKind::WaitTimeout | ErrorKind::QueueFull { .. } => Self::Locked,
            ErrorKind::AlreadyRun | ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Outage
            | ErrorKind::ShutDown
            | ErrorKind::NotPrimary
            | ErrorKind::PermissionDenied
            | ErrorKind::Protocol => Self::Down,
            ErrorKind::BodyTimeout => Self::TooLong,
            _ => Self::Fault,
        }
    }

    /// Classifies the error, and writes it to the log: the client of the service does not get its words.
    fn logged(error: &Error) -> Self {
        let failure = Self::of(error.kind());
        let is_news = match error.kind() {
            // A hold that was not lost, but used wrongly, has no line of its own.
            ErrorKind::Lost(cause) => matches!(cause, LossCause::LeftBody | LossCause::Released),
            _ => matches!(failure, Self::Fault),
        };
        let told = if is_news { INTERNAL.passes(error.kind(), Instant::now()) } else { None };
        let (error, left_out) = (error.to_string(), told.filter(|count| *count > 0));
        let answer = if is_news { "an internal error" } else { "an error of a lock" };
        // At once: a handler of the service answers, and no thread of ours.
        caught(|| match told {
            Some(_) => tracing::error!(target: "dlock", error, left_out, "a request is answered with {answer}"),
            None => tracing::debug!(target: "dlock", error, "a request is answered with {answer}"),
        });
        failure
    }

    const fn text(&self) -> &'static str {
        match self {
            Self::Locked => "another request holds the lock; try again later",
            Self::Conflict => "another writer changed the data first; read it again and retry",
            Self::Down => "temporarily unavailable; try again later",
            Self::TooLong => "the request took too long",
            Self::Fault => "internal error",
        }
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Error {
    fn into_response(self) -> axum_core::response::Response {
        use http::{HeaderValue, StatusCode, header};

        let failure = Failure::logged(&self);
        let status = match failure {
            Failure::Locked => StatusCode::LOCKED,
            Failure::Conflict => StatusCode::CONFLICT,
            Failure::Down => StatusCode::SERVICE_UNAVAILABLE,
            Failure::TooLong => StatusCode::GATEWAY_TIMEOUT,
            Failure::Fault => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = (status, failure.text()).into_response();
        if matches!(failure, Failure::Locked | Failure::Down) {
            let after = self.retry_after().unwrap_or_default().as_millis().div_ceil(1000).max(1);
            let after = HeaderValue::from(u64::try_from(after).unwrap_or(u64::MAX));
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}

#[cfg(feature = "tonic")]
impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        let failure = Failure::logged(&error);
        let code = match failure {
            Failure::Locked | Failure::Down => tonic::Code::Unavailable,
            Failure::Conflict => tonic::Code::Aborted,
            Failure::TooLong => tonic::Code::DeadlineExceeded,
            Failure::Fault => tonic::Code::Internal,
        };
        let mut status = Self::new(code, failure.text());
        // The source is for the server's own log. It is not sent to the client.
        status.set_source(std::sync::Arc::new(error));
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_one_line_of_a_kind_and_the_next_one_counts_the_others() {
        let (told, start) = (Told(Mutex::default()), Instant::now());
        let passes = |error: &ErrorKind, ms: u64| told.passes(error, start + Duration::from_millis(ms));
        let [misused, released] = [LossCause::LeftBody, LossCause::Released].map(ErrorKind::Lost);
        for kind in [&ErrorKind::KeyConflict, &misused, &released] {
            assert_eq!(passes(kind, 0), Some(0));
        }
        assert!((1..1000).step_by(3).all(|ms| passes(&misused, ms).is_none()));
        assert_eq!(passes(&misused, 1000), Some(333));
        assert_eq!((passes(&misused, 1999), passes(&misused, 2000), passes(&released, 2000)), (None, Some(1), Some(0)));
    }
}
