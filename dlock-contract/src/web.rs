//! What a failed lock is to the client of a service: for handlers that return [`Error`] as it is.
//!
//! | what went wrong | HTTP | gRPC |
//! | --- | --- | --- |
//! | somebody else holds the lock: busy, wait timeout, too many waiters | 423 Locked, `Retry-After` | `UNAVAILABLE` |
//! | this period's run was started already, or every attempt met a conflict | 409 Conflict | `ABORTED` |
//! | the store is down, or dlock was shut down | 503 Service Unavailable, `Retry-After` | `UNAVAILABLE` |
//! | the body's own limit ran out | 504 Gateway Timeout | `DEADLINE_EXCEEDED` |
//! | the lock was lost; everything else | 500 Internal Server Error | `INTERNAL` |
//!
//! `Retry-After` is in whole seconds: [`Error::retry_after`], so 5 at most, and 1 where the store has told nothing.
//! The client is told neither the key nor the backend.

use crate::error::{Error, ErrorKind};

/// What the client may do about it.
enum Answer {
    Locked,
    Conflict,
    Down,
    TooLong,
    Fault,
}

impl Answer {
    const fn to(error: &ErrorKind) -> Self {
        match error {
            ErrorKind::Busy | ErrorKind::WaitTimeout | ErrorKind::QueueFull { .. } => Self::Locked,
            ErrorKind::AlreadyRun | ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Outage | ErrorKind::ShutDown => Self::Down,
            ErrorKind::BodyTimeout => Self::TooLong,
            _ => Self::Fault,
        }
    }

    const fn text(&self) -> &'static str {
        match self {
            Self::Locked => "somebody else is at it; try again later",
            Self::Conflict => "somebody else was faster",
            Self::Down => "temporarily unavailable; try again later",
            Self::TooLong => "it took too long",
            Self::Fault => "internal error",
        }
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Error {
    fn into_response(self) -> axum_core::response::Response {
        use http::{HeaderValue, StatusCode, header};

        let answer = Answer::to(self.kind());
        let status = match answer {
            Answer::Locked => StatusCode::LOCKED,
            Answer::Conflict => StatusCode::CONFLICT,
            Answer::Down => StatusCode::SERVICE_UNAVAILABLE,
            Answer::TooLong => StatusCode::GATEWAY_TIMEOUT,
            Answer::Fault => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = (status, answer.text()).into_response();
        if matches!(answer, Answer::Locked | Answer::Down) {
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
        let answer = Answer::to(error.kind());
        let code = match answer {
            Answer::Locked | Answer::Down => tonic::Code::Unavailable,
            Answer::Conflict => tonic::Code::Aborted,
            Answer::TooLong => tonic::Code::DeadlineExceeded,
            Answer::Fault => tonic::Code::Internal,
        };
        let mut status = Self::new(code, answer.text());
        // For the server's own log; it does not travel.
        status.set_source(std::sync::Arc::new(error));
        status
    }
}
