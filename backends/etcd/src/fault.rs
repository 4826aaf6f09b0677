//! etcd's refusals, as errors of the contract.

use std::error::Error as StdError;

use dlock_contract::{Error, ErrorKind};
use etcd_client::Error as ClientError;

/// Why a request got no usable answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The lease is over, and so is every key on it.
    LeaseGone,
    /// The space quota is used up: puts are refused, deletes and keep-alives go on.
    NoSpace,
    /// The connection or its member is broken.
    Broken(String),
    /// Anything else.
    Refused(ErrorKind, String),
}

impl Fault {
    pub(super) fn error(&self) -> Error {
        match self {
            // The lease code handles this. It comes here only if a lease ended twice within one attempt.
            Self::LeaseGone => Error::outage("etcd ended the lease during the request"),
            Self::NoSpace => Error::outage(
                "etcd's space quota is used up (alarm NOSPACE), so it grants no locks; compact and defragment it",
            ),
            Self::Broken(text) => Error::outage(format!("etcd gave no usable answer: {text}")),
            Self::Refused(kind, text) => Error::new(kind.clone(), format!("etcd refused: {text}")),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error()
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::GRpcStatus(status) => {
                of_code(&format!("{:?}", status.code()), status.message(), || depths(status))
            }
            // The client library turns a keep-alive answer without a ttl into this error.
            ClientError::LeaseKeepAliveError(text) if text == "lease not found" => Self::LeaseGone,
            ClientError::InvalidUri(_) | ClientError::InvalidArgs(_) => Self::Refused(
                ErrorKind::ConfigInvalid { field: "url".into() },
                "the etcd client does not accept this address".into(),
            ),
            other => Self::Broken(depths(other)),
        }
    }
}

/// By the name of the gRPC code, since the client does not export its type.
fn of_code(code: &str, message: &str, whole: impl Fn() -> String) -> Fault {
    let says = |text: &str| message.contains(text);
    let refused = |kind| Fault::Refused(kind, message.to_owned());
    match code {
        "NotFound" if says("lease not found") => Fault::LeaseGone,
        "ResourceExhausted" if says("space exceeded") => Fault::NoSpace,
        // Too many requests at once, or one that is too large for the moment.
        "ResourceExhausted" => refused(ErrorKind::Outage),
        // The token has expired, or an earlier run of the server gave it. A new connection gets a new token.
        _ if says("invalid auth token") || says("auth store is old") => Fault::Broken(message.to_owned()),
        "PermissionDenied" | "Unauthenticated" => refused(ErrorKind::PermissionDenied),
        "InvalidArgument" if says("authentication failed") || says("user name") => refused(ErrorKind::PermissionDenied),
        "FailedPrecondition" if says("authentication is not enabled") => Fault::Refused(
            ErrorKind::ConfigInvalid { field: "url".into() },
            "the URL has a user, but authentication is not enabled".into(),
        ),
        "Unimplemented" => refused(ErrorKind::Unsupported { need: "etcd 3.4 or later".into() }),
        "InvalidArgument" | "FailedPrecondition" | "OutOfRange" | "NotFound" | "AlreadyExists" => {
            refused(ErrorKind::Protocol)
        }
        // Unavailable, DeadlineExceeded, Cancelled, and errors of the transport in its own words.
        _ => Fault::Broken(whole()),
    }
}

/// A status hides the useful words ("connection refused") behind its sources.
fn depths(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: &str, message: &str) -> (ErrorKind, bool) {
        let error = of_code(code, message, || message.to_owned()).error();
        (error.kind().clone(), error.is_retryable())
    }

    #[test]
    fn each_refusal_of_etcd_has_an_error_kind() {
        assert_eq!(kind("Unavailable", "etcdserver: no leader"), (ErrorKind::Outage, true));
        assert_eq!(kind("DeadlineExceeded", "x"), (ErrorKind::Outage, true));
        assert_eq!(kind("Cancelled", "x"), (ErrorKind::Outage, true));
        assert_eq!(kind("Unknown", "transport error"), (ErrorKind::Outage, true));
        assert_eq!(kind("ResourceExhausted", "etcdserver: too many requests"), (ErrorKind::Outage, true));
        assert_eq!(kind("ResourceExhausted", "etcdserver: mvcc: database space exceeded"), (ErrorKind::Outage, true));
        assert_eq!(kind("PermissionDenied", "etcdserver: permission denied"), (ErrorKind::PermissionDenied, false));
        assert_eq!(kind("Unauthenticated", "etcdserver: invalid auth token"), (ErrorKind::Outage, true));
        let wrong = "etcdserver: authentication failed, invalid user ID or password";
        assert_eq!(kind("InvalidArgument", wrong), (ErrorKind::PermissionDenied, false));
        assert_eq!(kind("InvalidArgument", "etcdserver: user name is empty"), (ErrorKind::PermissionDenied, false));
        assert_eq!(kind("InvalidArgument", "etcdserver: key is not provided"), (ErrorKind::Protocol, false));
    }
}
