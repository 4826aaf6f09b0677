//! A release that also makes the node of the process's next caller, in one transaction.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Released, Result};
use futures::future::join;
use zookeeper_client::{Client, CreateMode, Error as ClientError, MultiWriteError, MultiWriteResult};

use super::enter::leaves_in_doubt;
use super::{HoldSession, Node, Place, PlaceState, StateAccess};
use crate::place::Shared;
use crate::queue::{Position, WaitQueue};
use crate::server::node_data;
use crate::session::{Deleted, Lease};

impl HoldSession {
    /// Frees the lock and makes the node of the next claim, at the end of the queue.
    pub(crate) async fn release_to(
        self: Arc<Self>,
        shared: Arc<Shared>,
        place: Arc<Place>,
        next: Arc<Claim>,
        access: StateAccess,
    ) -> Result<(Released, Option<Attempt>)> {
        let mut state = access.await;
        let is_new = state.node.is_none() && !state.in_doubt;
        if place.path != self.place.path
            || !next.renewed
            || next.ttl != self.lease.ttl()
            || !self.lease.shared
            || !is_new
        {
            if is_new {
                shared.places.forget_empty(next.owner, &place);
            }
            let access = self.place.next_access().await;
            return Ok((self.release(access).await?, None));
        }
        let mut own = self.place.state.lock().await;
        if !self.lease.lives() {
            shared.places.forget_empty(next.owner, &place);
            return Ok((Released::NotOwner, None));
        }
        state.lease = Some(self.lease.clone());
        let lease = &self.lease;
        let exchanged = async {
            let client = lease.client().await?;
            let exchange = async {
                let has_slot = self.has_slot(&client).await?;
                let pending = self.begin_release(has_slot);
                let replaced =
                    if has_slot { self.replace(&shared, &client, &place, &next, &mut state).await } else { Ok(None) };
                let (deleted, entered) = match replaced {
                    Ok(Some(queue)) => (Ok(Deleted::All), Ok(Some(queue))),
                    // The lock was lost before. The next claim enters the queue all the same.
                    Ok(None) => (Ok(Deleted::Missing), place.enter(&shared, &client, lease, &next, &mut state).await),
                    Err(error) => (Err(error), Ok(None)),
                };
                let released = self.finish_release(&client, pending, deleted, &mut own).await?;
                let answer = match entered? {
                    Some(queue) => place.answer(&client, lease, &next, &queue, &mut state).await?,
                    None => None,
                };
                if answer.is_none() {
                    place.delete_nodes(&client, lease, &mut state).await?;
                    shared.places.forget_empty(next.owner, &place);
                }
                Ok((released, answer))
            };
            lease.while_connected(exchange).await
        };
        match exchanged.await {
            // A node that the request may have made ends with its session. Nobody abandons the next claim after this answer.
            Err(error) if error.is_retryable() && lease.has_ended().await => {
                shared.places.forget_empty(next.owner, &place);
                Ok((Released::NotOwner, None))
            }
            exchanged => exchanged,
        }
    }

    /// In one transaction, deletes the nodes of the hold and makes the node of the next claim. Then reads the queue. This
    /// costs the servers one commit, as a release alone does; two requests would cost two. `None`: a node of the hold did
    /// not exist, and nothing was done.
    async fn replace(
        &self,
        shared: &Shared,
        client: &Client,
        place: &Place,
        next: &Claim,
        state: &mut PlaceState,
    ) -> Result<Option<WaitQueue>, ClientError> {
        let from = self.lease.clock().now();
        let prefix = place.child(&place.prefix);
        let mut writer = client.new_multi_writer();
        self.nodes.iter().try_for_each(|node| writer.add_delete(node, None))?;
        let options = CreateMode::EphemeralSequential.with_acls(shared.acls);
        writer.add_create(&prefix, &node_data::of(&next.note), &options)?;
        state.in_doubt = true;
        let (done, listed) = join(writer.commit(), client.list_children(&place.path)).await;
        let mut results = match done {
            Ok(results) => results,
            Err(MultiWriteError::OperationFailed { source: ClientError::NoNode, .. }) => {
                state.in_doubt = false;
                return Ok(None);
            }
            Err(error) => {
                let error = ClientError::from(error);
                state.in_doubt = leaves_in_doubt(&error);
                return Err(error);
            }
        };
        // If the answer does not show enough of the node, the next request of the place looks it up.
        if let Some(MultiWriteResult::Create { path, stat }) = results.pop()
            && let Some((_, name)) = path.rsplit_once('/')
            // Servers may leave the stat out (ZOOKEEPER-4667).
            && let Ok(Some(stat)) = if stat.is_invalid() { client.check_stat(&path).await } else { Ok(Some(stat)) }
        {
            state.in_doubt = false;
            state.node = Some(Node { name: name.to_owned(), token: stat.czxid, since: Some(from) });
        }
        // The release is done, even if the list failed. Without the list, the next caller makes its own attempt.
        Ok(Some(listed.map(|children| WaitQueue::of(&children)).unwrap_or_default()))
    }
}

impl Place {
    /// The attempt's answer, if the place holds the lock or is behind others. `None`: neither.
    async fn answer(
        self: &Arc<Self>,
        client: &Client,
        lease: &Arc<Lease>,
        claim: &Arc<Claim>,
        queue: &WaitQueue,
        state: &mut PlaceState,
    ) -> Result<Option<Attempt>> {
        match self.position(queue, state) {
            Position::First => Ok(self.grant(client, lease, claim, state).await?.map(Attempt::Acquired)),
            Position::Absent | Position::Conflict | Position::CounterEnded => Ok(None),
            position => {
                state.waited = true;
                Ok(Some(Attempt::Contended(self.wake(claim, lease, position)?)))
            }
        }
    }
}
