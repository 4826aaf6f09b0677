//! Whether nodes exist, confirmed by a majority.
//!
//! A plain read is not enough: a member that is cut off from the leader answers reads for some more seconds. The other
//! members may have ended the session and granted the lock to somebody else by then.

use dlock_contract::Result;
use zookeeper_client::{Client, Error as ClientError, MultiWriteError};

use crate::server::fault::fault;

/// The most nodes of one request.
pub(crate) const MAX_NODES: usize = 128;

/// Whether all of these nodes exist.
pub(crate) async fn all_exist(client: &Client, nodes: &[String]) -> Result<bool> {
    let mut writer = client.new_multi_writer();
    for node in nodes {
        writer.add_check_version(node, -1).map_err(|error| fault(&error))?;
    }
    match writer.commit().await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed { source: ClientError::NoNode, .. }) => Ok(false),
        Err(MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source }) => {
            Err(fault(&source))
        }
    }
}
