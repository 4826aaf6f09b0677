//! The end of a place: release, abandon, and leaving the line.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Error, Released, Result};
use zookeeper_client::{Client, Error as ClientError, MultiWriteError};

use super::{Held, Known, Place, Turn};
use crate::place::Core;
use crate::session::Lease;
use crate::wire::fault::fault;

/// What became of nodes that were to be deleted in one step.
pub(super) enum Deleted {
    All,
    /// One was not there, so nothing was deleted.
    Missing,
}

/// A release that is under way.
pub(super) struct Leaving {
    from: BootInstant,
    /// Whether an earlier one had no answer.
    tried_before: bool,
}

impl Leaving {
    /// Before the request leaves: it may be given up, and be done all the same.
    pub(super) fn begin(known: &mut Known, lease: &Lease) -> Self {
        Self { from: lease.clock().now(), tried_before: std::mem::replace(&mut known.leaving, true) }
    }
}

impl Held {
    /// Deletes the nodes of the hold.
    pub(crate) async fn release(self: Arc<Self>, turn: Turn) -> Result<Released> {
        let mut known = turn.await;
        if !self.lease.lives() {
            return Ok(Released::NotOwner);
        }
        let client = self.lease.client().await?;
        self.lease.while_connected(self.free(&client, &mut known)).await
    }

    async fn free(&self, client: &Client, known: &mut Known) -> Result<Released> {
        let has_slot = self.has_slot(client).await?;
        let leaving = Leaving::begin(known, &self.lease);
        let deleted = if has_slot { delete(client, &self.nodes).await } else { Ok(Deleted::Missing) };
        self.settle(client, leaving, deleted, known).await
    }

    /// Draws the consequences of a delete.
    pub(super) async fn settle(
        &self,
        client: &Client,
        leaving: Leaving,
        deleted: Result<Deleted, ClientError>,
        known: &mut Known,
    ) -> Result<Released> {
        // The claim may have another node by now, if an operator deleted this one.
        let is_present = self.place.nodes(known).first() == self.nodes.first();
        let released = match deleted {
            Ok(Deleted::All) => Released::Released,
            Ok(Deleted::Missing) if leaving.tried_before => {
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
        self.lease.confirm(leaving.from);
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
    pub(crate) async fn abandon(self: &Arc<Self>, core: &Arc<Core>, ttl: Duration, turn: Turn) -> Result<()> {
        let mut known = turn.await;
        if known.node.is_none() && known.slot.is_none() && !known.unsure {
            self.end_own(&known);
            return Ok(());
        }
        // The nodes of a session that ended here may stand for some time.
        let lease = match known.lease.clone().filter(|lease| lease.lives()) {
            Some(lease) => lease,
            None => core.leases.shared(ttl).await?,
        };
        let client = lease.client().await?;
        lease.while_connected(self.clear(&client, &lease, &mut known)).await?;
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
        if !self.has_slot(client, known.slot).await? {
            known.slot = None;
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
async fn delete(client: &Client, nodes: &[String]) -> Result<Deleted, ClientError> {
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
