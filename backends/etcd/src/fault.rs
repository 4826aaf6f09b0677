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

/// Advice for errors of an opening, by words of the servers and of the client library.
pub(super) const FIRST_CONTACT: [(&str, &str); 7] = [
    ("Connection refused", "check the host and the port, and whether etcd runs"),
    ("certificate", "check that `ca` has the authority that signs the server's certificate"),
    ("invalid user ID or password", "check the user and the password in the URL"),
    ("user name is empty", "the servers want an account: write etcd://user:password@host"),
    ("authentication is not enabled", "take the user out of the URL, or enable authentication"),
    ("no usable answer", "check that the port is etcd's, and whether it speaks TLS (tls=verify) or not (tls=off)"),
    (
        "answered in time",
        "check the host, the port and the firewall, and whether the port speaks TLS (tls=verify) or not (tls=off)",
    ),
];

/// The words with which a server refuses a request that has too many bytes.
const TOO_LARGE: &str = "received message larger than max";

impl Fault {
    /// Whether the server refused the request for its content, before it executed anything. Only then may the same request
    /// be sent again in parts. Other failures say nothing about the outcome, or come from load, which parts would increase.
    /// [`NoSpace`](Self::NoSpace) is an exception: the server may have executed the request.
    pub(super) fn refuses_content(&self) -> bool {
        match self {
            Self::LeaseGone | Self::NoSpace => true,
            Self::Broken(_) | Self::Refused(ErrorKind::Outage, _) => false,
            Self::Refused(_, text) => text.starts_with("etcdserver: ") || text.contains(TOO_LARGE),
        }
    }

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
        // The client library gives an end of the HTTP/2 stream as one of these codes. The server may have executed the request.
        "ResourceExhausted" | "PermissionDenied" if says("h2 protocol error") => Fault::Broken(message.to_owned()),
        "ResourceExhausted" if says("space exceeded") => Fault::NoSpace,
        "ResourceExhausted" if says(TOO_LARGE) => refused(ErrorKind::Protocol),
        // Too many requests at once.
        "ResourceExhausted" => refused(ErrorKind::Outage),
        // The auth token has expired, or the server has restarted since it gave it. A new connection gets a new one.
        _ if says("invalid auth token") || says("auth store is old") => Fault::Broken(message.to_owned()),
        "PermissionDenied" | "Unauthenticated" => refused(ErrorKind::PermissionDenied),
        "InvalidArgument" if says("authentication failed") || says("user name") => refused(ErrorKind::PermissionDenied),
        "FailedPrecondition" if says("authentication is not enabled") => Fault::Refused(
            ErrorKind::ConfigInvalid { field: "url".into() },
            "the URL has a user, but authentication is not enabled".into(),
        ),
        "Unimplemented" => Fault::Refused(
            ErrorKind::Unsupported { need: "etcd 3.4 or later".into() },
            format!("{message}; this etcd is too old, and locks need 3.4 or later"),
        ),
        "InvalidArgument" | "FailedPrecondition" | "NotFound" | "AlreadyExists" => refused(ErrorKind::Protocol),
        // Unavailable, DeadlineExceeded, Cancelled, and transport errors. OutOfRange, which the client library gives for an
        // answer that it does not read: the server has executed the request.
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
        let large = "grpc: received message larger than max (2 vs. 1)";
        assert_eq!(kind("ResourceExhausted", large), (ErrorKind::Protocol, false));
    }

    #[test]
    fn only_a_refusal_of_the_content_lets_a_request_be_sent_in_parts() {
        for (code, message, refuses) in [
            ("NotFound", "etcdserver: requested lease not found", true),
            ("ResourceExhausted", "etcdserver: mvcc: database space exceeded", true),
            ("PermissionDenied", "etcdserver: permission denied", true),
            ("InvalidArgument", "etcdserver: request is too large", true),
            ("InvalidArgument", "etcdserver: duplicate key given in txn request", true),
            ("ResourceExhausted", "grpc: received message larger than max (2098000 vs. 2097152)", true),
            // The server has executed it.
            ("OutOfRange", "Error, decoded message length too large: found 2 bytes, the limit is: 1 bytes", false),
            ("ResourceExhausted", "grpc: trying to send message larger than max (2 vs. 1)", false),
            // The server may have executed it.
            ("ResourceExhausted", "h2 protocol error: http2 error", false),
            ("PermissionDenied", "h2 protocol error: http2 error", false),
            ("Unavailable", "etcdserver: request timed out", false),
            ("Unknown", "transport error", false),
            // Parts would be more requests for a server that has too many.
            ("ResourceExhausted", "etcdserver: too many requests", false),
            ("Unauthenticated", "etcdserver: invalid auth token", false),
        ] {
            let fault = from_grpc_code(code, message, || message.to_owned());
            assert_eq!(fault.refuses_content(), refuses, "{code}: {message}");
            if message.starts_with("h2") || code == "OutOfRange" {
                assert_eq!(kind(code, message), (ErrorKind::Outage, true), "{code}: {message}");
            }
        }
    }
}
