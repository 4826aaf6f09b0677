//! A grant, once the place stands where it holds the lock.

use std::sync::Arc;

use dlock_contract::{Claim, Error, ErrorKind, Hold, Result, Validity};
use zookeeper_client::{Client, Error as ClientError};

use super::{Held, Known, Place};
use crate::line::Kind;
use crate::session::Lease;
use crate::wire::data;
use crate::wire::fault::fault;
use crate::wire::standing;

impl Place {
    /// The hold of a place that holds the lock. `None`: its nodes have gone, or others took what was free.
    pub(super) async fn grant(
        self: &Arc<Self>,
        client: &Client,
        lease: &Arc<Lease>,
        claim: &Arc<Claim>,
        known: &mut Known,
    ) -> Result<Option<Hold>> {
        if let Kind::Permit(limit) = self.kind {
            if known.slot.is_none() && !self.take_slot(client, lease, limit, known).await? {
                return Ok(None);
            }
        } else if self.kind != Kind::Exclusive && known.waited && !self.raise(client, lease, claim, known).await? {
            return Ok(None);
        }
        // Of a place that waited, a majority has confirmed the session some time ago.
        let Some(node) = &known.node else { return Ok(None) };
        let from = match node.since {
            Some(since) => since,
            None if !lease.is_stale() => lease.confirmed(),
            None => {
                let from = lease.clock().now();
                if !standing::check(client, &self.nodes(known)).await? {
                    return Ok(None);
                }
                lease.confirm(from);
                from
            }
        };
        // The session may have been given up while the store was asked. It is about to close, and frees the lock then.
        if !lease.lives() {
            return Ok(None);
        }
        let token = known.slot.map_or(node.token, |(_, token)| token);
        let nodes = self.nodes(known);
        let token = u64::try_from(token).ok().filter(|token| *token > 0);
        let token = token.ok_or_else(|| Error::new(ErrorKind::Protocol, "ZooKeeper gave a node without a number"))?;
        let hold = Hold::new(claim.clone(), token, Validity::new(from, claim.ttl))?;
        let hold = match known.slot {
            Some((slot, _)) => hold.with_slot(slot),
            None => hold,
        };
        Ok(Some(hold.with_session(Arc::new(Held {
            place: self.clone(),
            lease: lease.clone(),
            nodes,
            slot: known.slot,
        }))))
    }

    /// A writer or reader that stood in line gets the number of a transaction of now: readers that came after it may have
    /// been granted before it. False: its node has gone.
    async fn raise(&self, client: &Client, lease: &Lease, claim: &Claim, known: &mut Known) -> Result<bool> {
        let Some(node) = &mut known.node else { return Ok(false) };
        let from = lease.clock().now();
        match client.set_data(&self.child(&node.name), &data::of(&claim.note), None).await {
            Ok(stat) => {
                lease.confirm(from);
                (node.token, node.since) = (stat.mzxid, Some(from));
                known.waited = false;
                Ok(true)
            }
            Err(ClientError::NoNode) => {
                known.node = None;
                Ok(false)
            }
            Err(error) => Err(fault(&error)),
        }
    }
}
