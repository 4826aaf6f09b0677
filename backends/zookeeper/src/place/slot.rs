//! The numbers of permits: a node for each that is taken, so that two holders never have the same.

use dlock_contract::Result;
use zookeeper_client::{Client, CreateMode, Error as ClientError};

use super::enter::leaves_doubt;
use super::{Held, Known, Place};
use crate::line::{Line, slot_name};
use crate::session::Lease;
use crate::wire::fault::fault;

/// How often the numbers are looked through. A holder that leaves frees its place and its number in one step, so one is
/// free for each who may hold.
const ROUNDS: usize = 4;

impl Held {
    /// Whether the node of the permit's number is still this hold's. True of a hold without a number.
    pub(crate) async fn has_slot(&self, client: &Client) -> Result<bool> {
        self.place.has_slot(client, self.slot).await
    }
}

impl Place {
    /// Whether the node of this number is the one that was made then. After an operator has deleted it, another holder may
    /// have made one of the same name.
    pub(super) async fn has_slot(&self, client: &Client, slot: Option<(u32, i64)>) -> Result<bool> {
        let Some((slot, token)) = slot else { return Ok(true) };
        let stat = client.check_stat(&self.child(&slot_name(slot))).await.map_err(|error| fault(&error))?;
        Ok(stat.is_some_and(|stat| stat.czxid == token))
    }

    /// Takes the lowest number that is free. False: others were quicker each time.
    pub(super) async fn take_slot(
        &self,
        client: &Client,
        lease: &Lease,
        limit: u32,
        known: &mut Known,
    ) -> Result<bool> {
        for _ in 0..ROUNDS {
            let taken = Line::of(&self.children(client).await?).slots().to_vec();
            for slot in (0..limit).filter(|slot| !taken.contains(slot)) {
                let from = lease.clock().now();
                known.unsure = true;
                let options = CreateMode::Ephemeral.with_acls(self.acls);
                match client.create(&self.child(&slot_name(slot)), self.prefix.as_bytes(), &options).await {
                    Ok((stat, _)) => {
                        known.unsure = false;
                        lease.confirm(from);
                        known.slot = Some((slot, stat.czxid));
                        return Ok(true);
                    }
                    Err(ClientError::NodeExists) => known.unsure = false,
                    Err(ClientError::NoNode) => {
                        known.unsure = false;
                        return Ok(false);
                    }
                    Err(error) => {
                        known.unsure = leaves_doubt(&error);
                        return Err(fault(&error));
                    }
                }
            }
        }
        Ok(false)
    }
}
