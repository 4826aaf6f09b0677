//! The end of a place: release, abandon, and leaving the queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_contract::{BootInstant, Released, Result};
use zookeeper_client::{Client, Error as ClientError};

use super::{HoldSession, Place, PlaceState, StateAccess};
use crate::place::Shared;
use crate::server::fault::fault;
use crate::session::{Deleted, Lease};

/// A release that is under way.
pub(super) struct PendingRelease {
    from: BootInstant,
    /// Whether an earlier release got no answer.
    was_leaving: bool,
}

impl HoldSession {
    /// Records the release before its request leaves: the caller may give it up, and the server may still do it. Without
    /// its slot, the hold is lost already, and no such request leaves.
    pub(super) fn begin_release(&self, has_slot: bool) -> PendingRelease {
        let was_leaving = self.leaving.fetch_or(has_slot, Ordering::AcqRel);
        PendingRelease { from: self.lease.clock().now(), was_leaving }
    }

    /// Deletes the nodes of the hold.
    pub(crate) async fn release(self: Arc<Self>, access: StateAccess) -> Result<Released> {
        let mut state = access.await;
        if !self.lease.lives() {
            return Ok(Released::NotOwner);
        }
        let released = async {
            let client = self.lease.client().await?;
            self.lease.while_connected(self.delete_hold_nodes(&client, &mut state)).await
        };
        match released.await {
            Err(error) if error.is_retryable() && self.lease.has_ended().await => Ok(Released::NotOwner),
            released => released,
        }
    }

    async fn delete_hold_nodes(&self, client: &Client, state: &mut PlaceState) -> Result<Released> {
        let has_slot = self.has_slot(client).await?;
        let pending = self.begin_release(has_slot);
        let deleted =
            if has_slot { self.lease.deletes.delete(client, &self.nodes).await } else { Ok(Deleted::Missing) };
        self.finish_release(client, pending, deleted, state).await
    }

    /// Turns the result of a delete into the result of the release.
    pub(super) async fn finish_release(
        &self,
        client: &Client,
        pending: PendingRelease,
        deleted: Result<Deleted, ClientError>,
        state: &mut PlaceState,
    ) -> Result<Released> {
        // If an operator deleted this node, the claim may have another one by now.
        let is_current = self.place.nodes(state).first() == self.nodes.first();
        let released = match deleted {
            Ok(Deleted::All) => Released::Released,
            Ok(Deleted::Missing) => {
                if is_current {
                    // One of the two nodes may be left.
                    self.place.delete_nodes(client, &self.lease, state).await?;
                }
                // An earlier release without an answer has deleted them.
                if pending.was_leaving { Released::Released } else { Released::NotOwner }
            }
            Err(ClientError::SessionExpired) => return Ok(Released::NotOwner),
            Err(error) => return Err(fault(&error)),
        };
        self.lease.confirm(pending.from);
        self.leaving.store(false, Ordering::Release);
        if is_current {
            (state.node, state.slot, state.waited) = (None, None, false);
        }
        if !self.lease.shared {
            self.lease.end();
        }
        Ok(released)
    }
}

impl Place {
    /// Deletes all nodes that the claim may have left, also those of an ended session.
    pub(crate) async fn abandon(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        ttl: Duration,
        access: StateAccess,
    ) -> Result<()> {
        let mut state = access.await;
        if state.node.is_none() && state.slot.is_none() && !state.in_doubt {
            self.end_own_lease(&state);
            return Ok(());
        }
        // If the claim's session was given up here, the server may keep its nodes for some time. Another session deletes
        // them now.
        let lease = match state.lease.clone().filter(|lease| lease.lives()) {
            Some(lease) => lease,
            None => shared.leases.shared(ttl).await?,
        };
        let client = lease.client().await?;
        lease.while_connected(self.delete_nodes(&client, &lease, &mut state)).await?;
        self.end_own_lease(&state);
        Ok(())
    }

    fn end_own_lease(&self, state: &PlaceState) {
        if let Some(lease) = state.lease.as_ref().filter(|lease| !lease.shared) {
            lease.end();
        }
    }

    /// Deletes the nodes of the place, also those that a request without an answer may have made.
    pub(super) async fn delete_nodes(&self, client: &Client, lease: &Lease, state: &mut PlaceState) -> Result<()> {
        if state.in_doubt {
            self.find_nodes(client, lease, state).await?;
        }
        if !self.has_slot(client, state.slot).await? {
            state.slot = None;
        }
        // In one step: the server may do a request much later, if its connection is slow. The slot may be another holder's by
        // then, but the node in the queue is never another's.
        let (nodes, from) = (self.nodes(state), lease.clock().now());
        match self.delete_together(client, lease, &nodes).await? {
            Deleted::All => lease.confirm(from),
            Deleted::Missing if nodes.len() > 1 => {
                // An operator has deleted one of the two, or both.
                if !self.has_slot(client, state.slot).await? {
                    state.slot = None;
                }
                for node in self.nodes(state) {
                    self.delete_together(client, lease, &[node]).await?;
                }
            }
            Deleted::Missing => {}
        }
        (state.node, state.slot, state.waited) = (None, None, false);
        Ok(())
    }

    async fn delete_together(&self, client: &Client, lease: &Lease, nodes: &[String]) -> Result<Deleted> {
        if nodes.is_empty() {
            return Ok(Deleted::Missing);
        }
        lease.deletes.delete(client, nodes).await.map_err(|error| fault(&error))
    }
}
