//! Whether the nodes of a place are there: after a request without an answer, and before a grant.

use dlock_contract::Result;
use futures::future::{join, join_all};
use zookeeper_client::{Client, Error as ClientError};

use super::{Known, Node, Place};
use crate::line::{Line, slot_name};
use crate::session::Lease;
use crate::wire::fault::fault;
use crate::wire::standing;

impl Place {
    /// Looks for the node whose making had no answer. Only one of the present session is ours: the server is about to
    /// delete those of earlier sessions.
    pub(super) async fn find(&self, client: &Client, lease: &Lease, known: &mut Known) -> Result<()> {
        let children = self.children(client).await?;
        let own = children.iter().filter(|name| name.starts_with(&self.prefix));
        let stats = join_all(own.map(async |name| (name, client.check_stat(&self.child(name)).await))).await;
        for (name, stat) in stats {
            let stat = stat.map_err(|error| fault(&error))?;
            if let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == lease.id()) {
                known.node = Some(Node { name: name.clone(), token: stat.mzxid, since: None });
            }
        }
        if known.slot.is_none() {
            known.slot = self.find_slot(client, lease, &children).await?;
        }
        known.unsure = false;
        Ok(())
    }

    /// The slot whose node says that it belongs to this place.
    async fn find_slot(&self, client: &Client, lease: &Lease, children: &[String]) -> Result<Option<(u32, i64)>> {
        let taken = Line::of(children).slots().to_vec();
        let read = taken.iter().map(async |slot| (slot, client.get_data(&self.child(&slot_name(*slot))).await));
        for (slot, found) in join_all(read).await {
            match found {
                Ok((data, stat)) if data == self.prefix.as_bytes() && stat.ephemeral_owner == lease.id() => {
                    return Ok(Some((*slot, stat.czxid)));
                }
                Ok(_) | Err(ClientError::NoNode) => {}
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(None)
    }

    /// All children, as the leader knows them.
    pub(super) async fn children(&self, client: &Client) -> Result<Vec<String>> {
        let (synced, listed) = join(client.sync(&self.path), client.list_children(&self.path)).await;
        synced.map_err(|error| fault(&error))?;
        match listed {
            Ok(children) => Ok(children),
            Err(ClientError::NoNode) => Ok(Vec::new()),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Confirms by a majority that our nodes are there, and reads the line. `None`: they are not.
    pub(super) async fn confirm(&self, client: &Client, lease: &Lease, known: &mut Known) -> Result<Option<Line>> {
        let from = lease.clock().now();
        let nodes = self.nodes(known);
        let (stands, listed) = join(standing::check(client, &nodes), client.list_children(&self.path)).await;
        if !stands? || !self.has_slot(client, known.slot).await? {
            known.node = None;
            // What is left of a place that an operator deleted in part.
            self.clear(client, lease, known).await?;
            return Ok(None);
        }
        lease.confirm(from);
        if let Some(node) = &mut known.node {
            node.since = Some(from);
        }
        match listed {
            Ok(children) => Ok(Some(Line::of(&children))),
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(fault(&error)),
        }
    }

    /// The paths of the nodes that are known.
    pub(super) fn nodes(&self, known: &Known) -> Vec<String> {
        let node = known.node.iter().map(|node| self.child(&node.name));
        node.chain(known.slot.iter().map(|(slot, _)| self.child(&slot_name(*slot)))).collect()
    }
}
