//! The slots of permits: each taken slot has a node, so that two holders never have the same slot.

use dlock_contract::Result;
use zookeeper_client::{Client, CreateMode, Error as ClientError};

use super::enter::leaves_in_doubt;
use super::{HoldSession, Place, PlaceState};
use crate::queue::{WaitQueue, slot_name};
use crate::server::fault::fault;
use crate::session::Lease;

/// How often all slots are tried. A holder that leaves frees its place and its slot in one step, so there is a free slot
/// for each claim that may hold a permit.
const MAX_TRIES: usize = 4;

impl HoldSession {
    /// Whether the node of the permit's slot is still this hold's. True for a hold without a slot.
    pub(crate) async fn has_slot(&self, client: &Client) -> Result<bool> {
        self.place.has_slot(client, self.slot).await
    }
}

impl Place {
    /// Whether the node of this slot is the one of that transaction. After an operator has deleted it, another holder may
    /// have made a node of the same name.
    pub(super) async fn has_slot(&self, client: &Client, slot: Option<(u32, i64)>) -> Result<bool> {
        let Some((slot, token)) = slot else { return Ok(true) };
        let stat = client.check_stat(&self.child(&slot_name(slot))).await.map_err(|error| fault(&error))?;
        Ok(stat.is_some_and(|stat| stat.czxid == token))
    }

    /// Takes the lowest free slot. False: others were quicker each time.
    pub(super) async fn take_slot(
        &self,
        client: &Client,
        lease: &Lease,
        limit: u32,
        state: &mut PlaceState,
    ) -> Result<bool> {
        for _ in 0..MAX_TRIES {
            let taken = WaitQueue::of(&self.children(client).await?).slots().to_vec();
            for slot in (0..limit).filter(|slot| !taken.contains(slot)) {
                let from = lease.clock().now();
                state.in_doubt = true;
                let options = CreateMode::Ephemeral.with_acls(self.acls);
                match client.create(&self.child(&slot_name(slot)), self.prefix.as_bytes(), &options).await {
                    Ok((stat, _)) => {
                        state.in_doubt = false;
                        lease.confirm(from);
                        state.slot = Some((slot, stat.czxid));
                        return Ok(true);
                    }
                    Err(ClientError::NodeExists) => state.in_doubt = false,
                    Err(ClientError::NoNode) => {
                        state.in_doubt = false;
                        return Ok(false);
                    }
                    Err(error) => {
                        state.in_doubt = leaves_in_doubt(&error);
                        return Err(fault(&error));
                    }
                }
            }
        }
        Ok(false)
    }
}
