//! The end of a place: release, abandon, and leaving the line.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Released, Result};
use zookeeper_client::{Client, Error as ClientError, MultiWriteError};

use super::{Held, Known, Place};
use crate::core::Core;
use crate::fault::fault;
use crate::session::Lease;

/// What became of nodes that were to be deleted in one step.
pub(super) enum Deleted {
    All,
    /// One was not there, so nothing was deleted.
    Missing,
}

impl Held {
    /// Deletes the nodes of the hold.
    pub(crate) async fn release(self: Arc<Self>) -> Result<Released> {
        let mut known = self.place.known.lock().await;
        if !self.lease.lives() {
            return Ok(Released::NotOwner);
        }
        let client = self.lease.client().await?;
        let from = self.lease.clock().now();
        let deleted = delete(&client, &self.nodes).await;
        self.settle(&client, from, deleted, &mut known).await
    }

    /// Draws the consequences of a delete that was sent at `from`.
    pub(super) async fn settle(
        &self,
        client: &Client,
        from: BootInstant,
        deleted: Result<Deleted, ClientError>,
        known: &mut Known,
    ) -> Result<Released> {
        // The claim may have another node by now, if an operator deleted this one.
        let is_present = self.place.nodes(known).first() == self.nodes.first();
        let tried_before = std::mem::replace(&mut known.leaving, true);
        let released = match deleted {
            Ok(Deleted::All) => Released::Released,
            Ok(Deleted::Missing) if tried_before => {
                return Err(Error::outage("the answer to an earlier release was lost"));
            }
            Ok(Deleted::Missing) => {
                if is_present {
                    // One of two may be left.
                    self.place.clear(client, &self.lease, known).await?;
                }
                Released::NotOwner
            }
            Err(ClientError::SessionExpired) => return Ok(Released::NotOwner),
            Err(error) => return Err(fault(&error)),
        };
        self.lease.confirm(from);
        known.leaving = false;
        if is_present {
            (known.node, known.slot, known.waited) = (None, None, false);
        }
        if !self.lease.shared {
            self.lease.end();
        }
        Ok(released)
    }
}

impl Place {
    /// Deletes all that the claim may have left, in whatever session.
    pub(crate) async fn abandon(self: &Arc<Self>, core: &Arc<Core>, ttl: Duration) -> Result<()> {
        let mut known = self.known.lock().await;
        if known.node.is_none() && known.slot.is_none() && !known.unsure {
            return Ok(self.end_own(&known));
        }
        // The nodes of a session that ended here may stand for some time.
        let lease = match known.lease.clone().filter(|lease| lease.lives()) {
            Some(lease) => lease,
            None => core.leases.shared(ttl).await?,
        };
        let client = lease.client().await?;
        self.clear(&client, &lease, &mut known).await?;
        self.end_own(&known);
        Ok(())
    }

    fn end_own(&self, known: &Known) {
        if let Some(lease) = known.lease.as_ref().filter(|lease| !lease.shared) {
            lease.end();
        }
    }

    /// Deletes the nodes of the place, also those of which nothing is known.
    pub(super) async fn clear(&self, client: &Client, lease: &Lease, known: &mut Known) -> Result<()> {
        if known.unsure {
            self.find(client, lease, known).await?;
        }
        for node in self.nodes(known) {
            let from = lease.clock().now();
            match client.delete(&node, None).await {
                Ok(()) => lease.confirm(from),
                Err(ClientError::NoNode) => {}
                Err(error) => return Err(fault(&error)),
            }
        }
        (known.node, known.slot, known.waited) = (None, None, false);
        Ok(())
    }
}

/// Deletes the nodes in one step.
pub(super) async fn delete(client: &Client, nodes: &[String]) -> Result<Deleted, ClientError> {
    if let [node] = nodes {
        return match client.delete(node, None).await {
            Ok(()) => Ok(Deleted::All),
            Err(ClientError::NoNode) => Ok(Deleted::Missing),
            Err(error) => Err(error),
        };
    }
    let mut writer = client.new_multi_writer();
    for node in nodes {
        writer.add_delete(node, None)?;
    }
    match writer.commit().await {
        Ok(_) => Ok(Deleted::All),
        Err(MultiWriteError::OperationFailed { source: ClientError::NoNode, .. }) => Ok(Deleted::Missing),
        Err(error) => Err(error.into()),
    }
}
