//! The errors of the client library, as errors of the contract.

use dlock_contract::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

/// Advice for errors of an opening, by their words.
pub(crate) const FIRST_CONTACT: [(&str, &str); 3] = [
    ("authentication failed", "check the user and the password in the URL, and `auth`"),
    ("read-only", "name the other servers of its ensemble too"),
    ("certificate", "check that `ca` has the authority that signs the servers' certificates"),
];

/// The error of the contract for an error of the client library.
pub(crate) fn fault(error: &ClientError) -> Error {
    let (kind, text) = match error {
        ClientError::NoAuth | ClientError::AuthFailed | ClientError::InvalidAcl => {
            (ErrorKind::PermissionDenied, "ZooKeeper refuses the account")
        }
        ClientError::NotReadOnly => {
            (ErrorKind::NotPrimary, "the ZooKeeper server is read-only: it has lost its majority")
        }
        ClientError::Unimplemented => (
            ErrorKind::Unsupported { need: "ZooKeeper 3.5 or later".into() },
            "this ZooKeeper is too old, and locks need 3.5 or later",
        ),
        ClientError::SessionExpired | ClientError::SessionMoved | ClientError::ClientClosed => {
            return Error::outage("the ZooKeeper session has ended");
        }
        // The servers have swept a container that was empty for a moment. The next attempt makes it anew.
        ClientError::NoNode => (ErrorKind::Outage, "a node was deleted in ZooKeeper while it was used"),
        ClientError::ConnectionLoss
        | ClientError::NoHosts
        | ClientError::Timeout
        | ClientError::Throttled
        | ClientError::QuotaExceeded
        | ClientError::Custom(_) => (ErrorKind::Outage, "ZooKeeper gave no usable answer"),
        _ => (ErrorKind::Protocol, "ZooKeeper gave an unexpected answer"),
    };
    Error::new(kind, format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_swept_is_worth_another_attempt() {
        assert!(fault(&ClientError::NoNode).is_retryable());
        assert!(!fault(&ClientError::NoAuth).is_retryable());
    }
}
