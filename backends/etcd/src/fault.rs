//! Failures of requests to etcd, as errors of the contract.

use std::error::Error as StdError;

use dlock_contract::{Error, ErrorKind};
use etcd_client::Error as ClientError;

/// Why a request got no usable answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The lease has ended, and every key on it.
    LeaseGone,
    /// The space quota is used up. The server refuses puts, and still accepts deletes and keep-alives.
    NoSpace,
    /// The connection or its member is broken.
    Broken(String),
    /// Anything else.
    Refused(ErrorKind, String),
}

impl Fault {
    pub(super) fn error(&self) -> Error {
        match self {
            // Attempts handle this with a new lease. It becomes an error only if a second lease ends too.
            Self::LeaseGone => Error::outage("etcd ended the lease during the request"),
            Self::NoSpace => Error::outage(
                "etcd's space quota is used up (alarm NOSPACE), so it grants no locks; compact and defragment the store, then disarm the alarm",
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
                from_grpc_code(&format!("{:?}", status.code()), status.message(), || root_cause(status))
            }
            // The client library turns a keep-alive answer without a ttl into this error.
            ClientError::LeaseKeepAliveError(text) if text == "lease not found" => Self::LeaseGone,
            ClientError::InvalidUri(_) | ClientError::InvalidArgs(_) => Self::Refused(
                ErrorKind::ConfigInvalid { field: "url".into() },
                "the etcd client does not accept this address".into(),
            ),
            other => Self::Broken(root_cause(other)),
        }
    }
}

/// Takes the name of the gRPC code, because the client does not export its type.
fn from_grpc_code(code: &str, message: &str, whole: impl Fn() -> String) -> Fault {
    let says = |text: &str| message.contains(text);
    let refused = |kind| Fault::Refused(kind, message.to_owned());
    match code {
        "NotFound" if says("lease not found") => Fault::LeaseGone,
        "ResourceExhausted" if says("space exceeded") => Fault::NoSpace,
        // Too many requests at once, or a request that is too large for the present load.
        "ResourceExhausted" => refused(ErrorKind::Outage),
        // The auth token has expired, or the server has restarted since it gave it. A new connection gets a new one.
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
        // Unavailable, DeadlineExceeded, Cancelled, and transport errors.
        _ => Fault::Broken(whole()),
    }
}

/// The text of the innermost source: there a status has the useful words, such as "connection refused".
fn root_cause(error: &(dyn StdError + 'static)) -> String {
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
        let error = from_grpc_code(code, message, || message.to_owned()).error();
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
