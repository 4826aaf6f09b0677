//! Whether nodes exist, confirmed by a majority.
//!
//! A plain read is not enough: a member that is cut off from the leader answers reads for some more seconds. The other
//! members may have ended the session and granted the lock to somebody else by then.

use dlock_contract::Result;
use zookeeper_client::{Client, Error as ClientError, MultiWriteError};

use crate::server::fault::fault;

/// The most nodes of one request. With the longest keys it is shorter than the longest request that servers accept
/// (`jute.maxbuffer`, 1 MiB).
pub(crate) const MAX_NODES: usize = 64;

/// Whether all of these nodes exist.
pub(crate) async fn all_exist(client: &Client, nodes: &[String]) -> Result<bool> {
    match check_all(client, nodes).await? {
        Ok(()) => Ok(true),
        Err(ClientError::NoNode) => Ok(false),
        Err(error) => Err(fault(&error)),
    }
}

/// Checks that all of these nodes exist and may be read. The inner error is that of the first node of which this is not
/// true; a majority has confirmed it.
pub(crate) async fn check_all(client: &Client, nodes: &[String]) -> Result<Result<(), ClientError>> {
    let mut writer = client.new_multi_writer();
    for node in nodes {
        writer.add_check_version(node, -1).map_err(|error| fault(&error))?;
    }
    match writer.commit().await {
        Ok(_) => Ok(Ok(())),
        Err(MultiWriteError::OperationFailed { source, .. }) => Ok(Err(source)),
        Err(MultiWriteError::RequestFailed { source }) => Err(fault(&source)),
    }
}
