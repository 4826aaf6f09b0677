//! One attempt: makes the claim's node, and reads the queue right after it.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Note, Queue, Result, Wake};
use futures::future::join;
use zookeeper_client::{Client, CreateMode, Error as ClientError};

use super::{Node, Place, PlaceState, StateAccess};
use crate::place::Shared;
use crate::queue::{NodeMode, Position, WaitQueue};
use crate::server::fault::fault;
use crate::server::node_data;
use crate::session::Lease;

/// How often an attempt begins again after somebody deleted its node.
const MAX_TRIES: usize = 4;

impl Place {
    /// Makes one attempt. Runs on our thread.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        claim: &Arc<Claim>,
        queue: Queue,
        access: StateAccess,
    ) -> Result<Attempt> {
        let mut state = access.await;
        let answer = async {
            let lease = self.lease(shared, claim, &mut state).await?;
            let client = lease.client().await?;
            lease.while_connected(self.ask(shared, &client, &lease, claim, queue, &mut state)).await
        };
        let answer = answer.await;
        if answer.is_err() && state.node.is_none() && state.slot.is_none() && !state.in_doubt {
            // No request left, so the engine does not abandon this claim.
            shared.places.forget_empty(claim.owner, self);
        }
        answer
    }

    async fn ask(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        client: &Client,
        lease: &Arc<Lease>,
        claim: &Arc<Claim>,
        queue: Queue,
        state: &mut PlaceState,
    ) -> Result<Attempt> {
        for _ in 0..MAX_TRIES {
            if !lease.lives() {
                return Err(Error::outage("the ZooKeeper session has ended"));
            }
            if state.in_doubt {
                self.find_nodes(client, lease, state).await?;
            }
            let wait_queue = if state.node.is_some() {
                match self.confirm(client, lease, state).await? {
                    Some(wait_queue) => wait_queue,
                    None => continue,
                }
            } else {
                if queue == Queue::Leave
                    && let Some(refused) = self.check_free(client).await?
                {
                    shared.places.forget_empty(claim.owner, self);
                    return refused;
                }
                match self.enter(shared, client, lease, claim, state).await? {
                    Some(wait_queue) => wait_queue,
                    None => continue,
                }
            };
            return match self.position(&wait_queue, state) {
                Position::First => match self.grant(client, lease, claim, state).await? {
                    Some(hold) => Ok(Attempt::Acquired(hold)),
                    None => continue,
                },
                Position::Absent => {
                    state.node = None;
                    continue;
                }
                Position::Conflict => {
                    self.delete_nodes(client, lease, state).await?;
                    shared.places.forget_empty(claim.owner, self);
                    Err(mode_conflict())
                }
                Position::CounterEnded => {
                    self.delete_nodes(client, lease, state).await?;
                    if self.reset_counter(client).await? {
                        continue;
                    }
                    shared.places.forget_empty(claim.owner, self);
                    Ok(Attempt::Contended(Wake::poll()))
                }
                _ if queue == Queue::Leave => {
                    self.delete_nodes(client, lease, state).await?;
                    shared.places.forget_empty(claim.owner, self);
                    Ok(Attempt::Contended(Wake::poll()))
                }
                position => {
                    state.waited = true;
                    Ok(Attempt::Contended(self.wake(claim, lease, position)?))
                }
            };
        }
        Err(Error::outage("somebody deleted the nodes of the lock during the attempt"))
    }

    /// The claim's lease. If its session has ended, the state of the place begins anew.
    async fn lease(&self, shared: &Arc<Shared>, claim: &Claim, state: &mut PlaceState) -> Result<Arc<Lease>> {
        if let Some(lease) = state.lease.clone().filter(|lease| lease.lives()) {
            return Ok(lease);
        }
        *state = PlaceState::default();
        let lease =
            if claim.renewed { shared.leases.shared(claim.ttl).await? } else { shared.leases.own(claim.ttl).await? };
        state.lease = Some(lease.clone());
        Ok(lease)
    }

    /// Makes the node and reads the queue, without waiting in between: the server answers a session's requests in order.
    /// `None`: the parent did not exist, and was made now.
    pub(super) async fn enter(
        &self,
        shared: &Shared,
        client: &Client,
        lease: &Lease,
        claim: &Claim,
        state: &mut PlaceState,
    ) -> Result<Option<WaitQueue>> {
        let (from, prefix, data) = (lease.clock().now(), self.child(&self.prefix), node_data::of(&claim.note));
        state.in_doubt = true;
        let create = client.create(&prefix, &data, &CreateMode::EphemeralSequential.with_acls(shared.acls));
        let list = client.list_children(&self.path);
        let (made, listed) = join(create, list).await;
        let (stat, sequence) = match made {
            Ok(made) => made,
            Err(ClientError::NoNode) => {
                state.in_doubt = false;
                self.make_parents(shared, client, lease).await?;
                return Ok(None);
            }
            Err(error) => {
                state.in_doubt = leaves_in_doubt(&error);
                return Err(fault(&error));
            }
        };
        state.in_doubt = false;
        lease.confirm(from);
        state.node = Some(Node { name: format!("{}{sequence}", self.prefix), token: stat.czxid, since: Some(from) });
        match listed {
            Ok(children) => Ok(Some(WaitQueue::of(&children))),
            Err(ClientError::NoNode) => Ok(Some(WaitQueue::default())),
            Err(error) => {
                // By the next attempt others may have held the lock.
                state.waited = true;
                Err(fault(&error))
            }
        }
    }

    /// Deletes the lock's node, so that the next one counts from zero. False: it has children. The server's counter stops at
    /// 2 147 483 647, and from then on all new nodes get this number.
    async fn reset_counter(&self, client: &Client) -> Result<bool> {
        match client.delete(&self.path, None).await {
            Ok(()) | Err(ClientError::NoNode) => Ok(true),
            Err(ClientError::NotEmpty) => Ok(false),
            Err(error) => Err(fault(&error)),
        }
    }

    /// For a caller that does not join the queue: its answer, if the lock is not free. Then no node has to be deleted.
    async fn check_free(&self, client: &Client) -> Result<Option<Result<Attempt>>> {
        let mut queue = match client.list_children(&self.path).await {
            Ok(children) => WaitQueue::of(&children),
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => return Err(fault(&error).never_sent()),
        };
        if queue.position_at_end(self.mode) != Position::First {
            // A server that lags behind the leader still lists a holder whose release was answered.
            queue = WaitQueue::of(&self.children(client).await.map_err(Error::never_sent)?);
        }
        match queue.position_at_end(self.mode) {
            Position::First => Ok(None),
            Position::Conflict => Ok(Some(Err(mode_conflict()))),
            _ => {
                let first = queue.contenders.first();
                let note = match first {
                    Some(first) => self.note(client, &first.name).await?,
                    None => None,
                };
                Ok(Some(Ok(Attempt::Contended(Wake::poll().held_by(note)))))
            }
        }
    }

    async fn note(&self, client: &Client, name: &str) -> Result<Option<Note>> {
        match client.get_data(&self.child(name)).await {
            Ok((data, _)) => {
                Ok(Some(node_data::note(&data).unwrap_or_else(|| Note::from_stored(Note::FOREIGN_CLIENT))))
            }
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(fault(&error).never_sent()),
        }
    }

    pub(super) fn position(&self, queue: &WaitQueue, state: &PlaceState) -> Position {
        let position = state.node.as_ref().map_or(Position::Absent, |node| queue.position(&node.name, self.mode));
        match (position, self.mode) {
            // A slot may outlive its holder's node in the queue, which an operator has deleted. It ends with the holder's next
            // renewal.
            (Position::First, NodeMode::Permit(limit)) if state.slot.is_none() && queue.has_no_slot(limit) => {
                Position::PermitsTaken
            }
            (position, _) => position,
        }
    }
}

/// Whether the server may have done the request although its answer is an error.
pub(super) fn leaves_in_doubt(error: &ClientError) -> bool {
    fault(error).kind() == &ErrorKind::Outage || fault(error).kind() == &ErrorKind::Protocol
}

fn mode_conflict() -> Error {
    Error::new(ErrorKind::KeyConflict, "the key is locked in another mode, which excludes this one")
}
