//! Whether nodes are there, by a majority.
//!
//! A read would not do: a member that is cut off from the leader goes on answering reads for some seconds, while the others
//! may have ended the session and granted the lock anew.

use dlock_contract::Result;
use zookeeper_client::{Client, Error as ClientError, MultiWriteError};

use crate::fault::fault;

/// How many nodes one request asks for.
pub(crate) const BATCH: usize = 128;

/// Whether all of these nodes are there.
pub(crate) async fn check(client: &Client, nodes: &[String]) -> Result<bool> {
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
