//! The grant, once the place is first in the queue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dlock_contract::{Claim, Error, ErrorKind, Hold, Result, Validity};
use zookeeper_client::{Client, Error as ClientError};

use super::{HoldSession, Place, PlaceState};
use crate::queue::NodeMode;
use crate::server::exists;
use crate::server::fault::fault;
use crate::server::node_data;
use crate::session::Lease;

impl Place {
    /// The hold of a place that is first in the queue. `None`: its nodes do not exist any more, or others took the free
    /// permit.
    pub(super) async fn grant(
        self: &Arc<Self>,
        client: &Client,
        lease: &Arc<Lease>,
        claim: &Arc<Claim>,
        state: &mut PlaceState,
    ) -> Result<Option<Hold>> {
        if let NodeMode::Permit(limit) = self.mode {
            if state.slot.is_none() && !self.take_slot(client, lease, limit, state).await? {
                return Ok(None);
            }
        } else if self.mode != NodeMode::Exclusive
            && state.waited
            && !self.renew_token(client, lease, claim, state).await?
        {
            return Ok(None);
        }
        // If the place has waited, the last confirmation of the session by a majority may be old.
        let Some(node) = &state.node else { return Ok(None) };
        let from = match node.since {
            Some(since) => since,
            None if !lease.is_stale() => lease.confirmed(),
            None => {
                let from = lease.clock().now();
                if !exists::all_exist(client, &self.nodes(state)).await? {
                    return Ok(None);
                }
                lease.confirm(from);
                from
            }
        };
        // The session may have been given up during these requests. It is about to close, which frees the lock.
        if !lease.lives() {
            return Ok(None);
        }
        let token = state.slot.map_or(node.token, |(_, token)| token);
        let nodes = self.nodes(state);
        let token = u64::try_from(token).ok().filter(|token| *token > 0);
        let token = token
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "ZooKeeper made a node without a transaction number"))?;
        let hold = Hold::new(claim.clone(), token, Validity::new(from, claim.ttl))?;
        let hold = match state.slot {
            Some((slot, _)) => hold.with_slot(slot),
            None => hold,
        };
        Ok(Some(hold.with_session(Arc::new(HoldSession {
            place: self.clone(),
            lease: lease.clone(),
            nodes,
            slot: state.slot,
            leaving: AtomicBool::new(false),
        }))))
    }

    /// Gives a writer or reader that has waited the number of a new transaction as its token. Without this, readers that
    /// came later and were granted earlier would have higher tokens. False: its node does not exist any more.
    async fn renew_token(&self, client: &Client, lease: &Lease, claim: &Claim, state: &mut PlaceState) -> Result<bool> {
        let Some(node) = &mut state.node else { return Ok(false) };
        let from = lease.clock().now();
        match client.set_data(&self.child(&node.name), &node_data::of(&claim.note), None).await {
            Ok(stat) => {
                lease.confirm(from);
                (node.token, node.since) = (stat.mzxid, Some(from));
                state.waited = false;
                Ok(true)
            }
            Err(ClientError::NoNode) => {
                state.node = None;
                Ok(false)
            }
            Err(error) => Err(fault(&error)),
        }
    }
}
