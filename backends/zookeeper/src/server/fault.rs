//! The errors of the client library, as errors of the contract.

use dlock_contract::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

/// The error of the contract for an error of the client library.
pub(crate) fn fault(error: &ClientError) -> Error {
    let (kind, text) = match error {
        ClientError::NoAuth | ClientError::AuthFailed | ClientError::InvalidAcl => {
            (ErrorKind::PermissionDenied, "ZooKeeper refuses the account")
        }
        ClientError::NotReadOnly => {
            (ErrorKind::NotPrimary, "the ZooKeeper server is read-only: it has lost its majority")
        }
        ClientError::Unimplemented => {
            (ErrorKind::Unsupported { need: "ZooKeeper 3.5 or later".into() }, "the ZooKeeper server is too old")
        }
        ClientError::SessionExpired | ClientError::SessionMoved | ClientError::ClientClosed => {
            return Error::outage("the ZooKeeper session has ended");
        }
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
