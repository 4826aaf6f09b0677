//! Makes the node whose children are the queue, and the nodes above it.

use dlock_contract::Result;
use futures::future::join_all;
use zookeeper_client::{Client, Error as ClientError};

use super::Place;
use crate::place::Shared;
use crate::server::fault::fault;
use crate::session::Lease;

impl Place {
    /// Makes the parent of the queue's nodes. A node that it makes confirms the session.
    ///
    /// If the nodes above are missing too, the requests for all of them leave together. With a round trip for each, a session
    /// with a short ttl would end meanwhile where the servers are far away.
    pub(super) async fn make_parents(&self, shared: &Shared, client: &Client, lease: &Lease) -> Result<()> {
        let (options, from) = (shared.parents(), lease.clock().now());
        let alone = client.create(&self.path, b"", &options).await;
        if alone.is_ok() {
            lease.confirm(from);
        }
        if !matches!(alone, Err(ClientError::NoNode)) {
            return result(alone.err());
        }
        let from = lease.clock().now();
        let above = self.path.match_indices('/').map(|(at, _)| &self.path[..at]).filter(|path| !path.is_empty());
        let made = join_all(above.chain([&self.path[..]]).map(|path| client.create(path, b"", &options))).await;
        if made.last().is_some_and(|last| last.is_ok()) {
            lease.confirm(from);
            return Ok(());
        }
        // Of several errors the last one names the cause: without a right, the nodes below are missing. An account
        // needs no right to the nodes above those that exist.
        let mut errors: Vec<_> = made.into_iter().map(Result::err).collect();
        match errors.pop().flatten() {
            Some(ClientError::NoNode) => {
                let why = errors.into_iter().flatten().rfind(|error| !is_there_or_missing(error));
                result(why.or(Some(ClientError::NoNode)))
            }
            last => result(last),
        }
    }
}

/// The node may exist already: another process has made it meanwhile.
fn result(error: Option<ClientError>) -> Result<()> {
    match error {
        None | Some(ClientError::NodeExists) => Ok(()),
        Some(error) => Err(fault(&error)),
    }
}

fn is_there_or_missing(error: &ClientError) -> bool {
    matches!(error, ClientError::NodeExists | ClientError::NoNode)
}
