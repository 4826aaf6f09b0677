//! The errors of the client library, as the contract's.

use dlock_contract::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

/// What an error of the client means for a lock.
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
        | ClientError::Custom(_) => (ErrorKind::Outage, "ZooKeeper did not answer usefully"),
        _ => (ErrorKind::Protocol, "ZooKeeper gave an answer that was not expected"),
    };
    Error::new(kind, format!("{text}: {error}"))
}
