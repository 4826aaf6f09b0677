//! Finds out whether the nodes of a place exist: after a request without an answer, and before a grant.

use dlock_contract::Result;
use futures::future::{join, join_all};
use zookeeper_client::{Client, Error as ClientError};

use super::{Node, Place, PlaceState};
use crate::queue::{WaitQueue, slot_name};
use crate::server::exists;
use crate::server::fault::fault;
use crate::session::Lease;

impl Place {
    /// Looks for a node whose creation got no answer. It is ours only if it belongs to the present session: the server is
    /// about to delete the nodes of ended sessions.
    pub(super) async fn find_nodes(&self, client: &Client, lease: &Lease, state: &mut PlaceState) -> Result<()> {
        let children = self.children(client).await?;
        let own = children.iter().filter(|name| name.starts_with(&self.prefix));
        let stats = join_all(own.map(async |name| (name, client.check_stat(&self.child(name)).await))).await;
        for (name, stat) in stats {
            let stat = stat.map_err(|error| fault(&error))?;
            if let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == lease.id()) {
                state.node = Some(Node { name: name.clone(), token: stat.mzxid, since: None });
                // Others may have held the lock since it was made.
                state.waited = true;
            }
        }
        if state.slot.is_none() {
            state.slot = self.find_slot(client, lease, &children).await?;
        }
        state.in_doubt = false;
        Ok(())
    }

    /// The slot whose node names this place.
    async fn find_slot(&self, client: &Client, lease: &Lease, children: &[String]) -> Result<Option<(u32, i64)>> {
        let taken = WaitQueue::of(children).slots().to_vec();
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

    /// All children, as the leader knows them now.
    pub(super) async fn children(&self, client: &Client) -> Result<Vec<String>> {
        let (synced, listed) = join(client.sync(&self.path), client.list_children(&self.path)).await;
        synced.map_err(|error| fault(&error))?;
        match listed {
            Ok(children) => Ok(children),
            Err(ClientError::NoNode) => Ok(Vec::new()),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Confirms by a majority that our nodes exist, and reads the queue. `None`: they do not.
    pub(super) async fn confirm(
        &self,
        client: &Client,
        lease: &Lease,
        state: &mut PlaceState,
    ) -> Result<Option<WaitQueue>> {
        let from = lease.clock().now();
        let nodes = self.nodes(state);
        let (stands, listed) = join(exists::all_exist(client, &nodes), client.list_children(&self.path)).await;
        if !stands? || !self.has_slot(client, state.slot).await? {
            // An operator may have deleted one of two nodes. Delete the other one.
            self.delete_nodes(client, lease, state).await?;
            return Ok(None);
        }
        lease.confirm(from);
        if let Some(node) = &mut state.node {
            node.since = Some(from);
        }
        match listed {
            Ok(children) => Ok(Some(WaitQueue::of(&children))),
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(fault(&error)),
        }
    }

    /// The paths of the nodes that this place is known to have.
    pub(super) fn nodes(&self, state: &PlaceState) -> Vec<String> {
        let node = state.node.iter().map(|node| self.child(&node.name));
        node.chain(state.slot.iter().map(|(slot, _)| self.child(&slot_name(*slot)))).collect()
    }
}
