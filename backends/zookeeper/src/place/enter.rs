//! One attempt: the claim's node is made, and the line is read right behind it.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Note, Queue, Result, Wake};
use futures::future::join;
use zookeeper_client::{Client, CreateMode, Error as ClientError};

use super::{Known, Node, Place, Turn};
use crate::line::{Line, Sight};
use crate::place::Core;
use crate::session::Lease;
use crate::wire::data;
use crate::wire::fault::fault;

/// How often an attempt begins again, if a node was deleted under it.
const TRIES: usize = 4;

impl Place {
    /// Asks once, on our thread.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        core: &Arc<Core>,
        claim: &Arc<Claim>,
        queue: Queue,
        turn: Turn,
    ) -> Result<Attempt> {
        let mut known = turn.await;
        let answer = async {
            let lease = self.lease(core, claim, &mut known).await?;
            let client = lease.client().await?;
            lease.while_connected(self.ask(core, &client, &lease, claim, queue, &mut known)).await
        };
        let answer = answer.await;
        if answer.is_err() && known.node.is_none() && known.slot.is_none() && !known.unsure {
            // Nobody has to abandon what never left.
            core.forget_empty(claim.owner, self);
        }
        answer
    }

    async fn ask(
        self: &Arc<Self>,
        core: &Arc<Core>,
        client: &Client,
        lease: &Arc<Lease>,
        claim: &Arc<Claim>,
        queue: Queue,
        known: &mut Known,
    ) -> Result<Attempt> {
        for _ in 0..TRIES {
            if !lease.lives() {
                return Err(Error::outage("the ZooKeeper session has ended"));
            }
            if known.unsure {
                self.find(client, lease, known).await?;
            }
            let line = if known.node.is_some() {
                match self.confirm(client, lease, known).await? {
                    Some(line) => line,
                    None => continue,
                }
            } else {
                if queue == Queue::Leave
                    && let Some(refused) = self.refused(client, claim).await?
                {
                    core.forget_empty(claim.owner, self);
                    return refused;
                }
                match self.enter(core, client, lease, claim, known).await? {
                    Some(line) => line,
                    None => continue,
                }
            };
            return match self.seen(&line, known) {
                Sight::First => match self.grant(client, lease, claim, known).await? {
                    Some(hold) => Ok(Attempt::Acquired(hold)),
                    None => continue,
                },
                Sight::Outside => {
                    known.node = None;
                    continue;
                }
                Sight::Conflict => {
                    self.clear(client, lease, known).await?;
                    core.forget_empty(claim.owner, self);
                    Err(conflict())
                }
                Sight::Uncounted => {
                    self.clear(client, lease, known).await?;
                    if self.count_anew(client).await? {
                        continue;
                    }
                    core.forget_empty(claim.owner, self);
                    Ok(Attempt::Contended(Wake::poll()))
                }
                _ if queue == Queue::Leave => {
                    self.clear(client, lease, known).await?;
                    core.forget_empty(claim.owner, self);
                    Ok(Attempt::Contended(Wake::poll()))
                }
                sight => {
                    known.waited = true;
                    Ok(Attempt::Contended(self.stand(claim, lease, sight)?))
                }
            };
        }
        Err(Error::outage("the nodes of the lock were deleted while it was asked for"))
    }

    /// The claim's lease. A node of an earlier session is of no use any more.
    async fn lease(&self, core: &Arc<Core>, claim: &Claim, known: &mut Known) -> Result<Arc<Lease>> {
        if let Some(lease) = known.lease.clone().filter(|lease| lease.lives()) {
            return Ok(lease);
        }
        *known = Known::default();
        let lease =
            if claim.renewed { core.leases.shared(claim.ttl).await? } else { core.leases.own(claim.ttl).await? };
        known.lease = Some(lease.clone());
        Ok(lease)
    }

    /// Makes the node, and reads the line in the same breath: the server answers a session's requests in their order.
    /// `None`: the parent was missing, and is there now.
    pub(super) async fn enter(
        &self,
        core: &Core,
        client: &Client,
        lease: &Lease,
        claim: &Claim,
        known: &mut Known,
    ) -> Result<Option<Line>> {
        let (from, prefix, data) = (lease.clock().now(), self.child(&self.prefix), data::of(&claim.note));
        known.unsure = true;
        let create = client.create(&prefix, &data, &CreateMode::EphemeralSequential.with_acls(core.acls));
        let list = client.list_children(&self.path);
        let (made, listed) = join(create, list).await;
        let (stat, sequence) = match made {
            Ok(made) => made,
            Err(ClientError::NoNode) => {
                known.unsure = false;
                client.mkdir(&self.path, &core.parents()).await.map_err(|error| fault(&error))?;
                return Ok(None);
            }
            Err(error) => {
                known.unsure = leaves_doubt(&error);
                return Err(fault(&error));
            }
        };
        known.unsure = false;
        lease.confirm(from);
        known.node = Some(Node { name: format!("{}{sequence}", self.prefix), token: stat.czxid, since: Some(from) });
        match listed {
            Ok(children) => Ok(Some(Line::of(&children))),
            Err(ClientError::NoNode) => Ok(Some(Line::default())),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Deletes the lock's node, so that the next one counts from zero. False: others stand below it. The counter stops at
    /// 2 147 483 647, and from then on the server gives this number to all.
    async fn count_anew(&self, client: &Client) -> Result<bool> {
        match client.delete(&self.path, None).await {
            Ok(()) | Err(ClientError::NoNode) => Ok(true),
            Err(ClientError::NotEmpty) => Ok(false),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Whether the line is taken, for a caller who does not join it. So nothing has to be undone.
    async fn refused(&self, client: &Client, claim: &Claim) -> Result<Option<Result<Attempt>>> {
        let line = match client.list_children(&self.path).await {
            Ok(children) => Line::of(&children),
            Err(ClientError::NoNode) => return Ok(None),
            Err(error) => return Err(fault(&error).never_sent()),
        };
        match line.at_the_end(self.kind) {
            Sight::First => Ok(None),
            Sight::Conflict => Ok(Some(Err(conflict().with_key(claim.key.as_str())))),
            _ => {
                let first = line.contenders.first();
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
            Ok((data, _)) => Ok(Some(data::note(&data).unwrap_or_else(|| Note::from_stored(Note::ANOTHER_TOOL)))),
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(fault(&error).never_sent()),
        }
    }

    pub(super) fn seen(&self, line: &Line, known: &Known) -> Sight {
        known.node.as_ref().map_or(Sight::Outside, |node| line.sight(&node.name, self.kind))
    }
}

/// Can the request have been done, although its answer is an error?
pub(super) fn leaves_doubt(error: &ClientError) -> bool {
    fault(error).kind() == &ErrorKind::Outage || fault(error).kind() == &ErrorKind::Protocol
}

fn conflict() -> Error {
    Error::new(ErrorKind::KeyConflict, "the key is locked in another mode, which does not mix with this one")
}
