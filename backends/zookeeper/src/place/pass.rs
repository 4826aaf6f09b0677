//! A release that also asks for the next caller of the process, in one breath.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Released, Result};
use futures::future::join;
use zookeeper_client::{Client, CreateMode, Error as ClientError, MultiWriteError, MultiWriteResult};

use super::enter::leaves_doubt;
use super::leave::{Deleted, Leaving};
use super::{Held, Known, Node, Place, Turn};
use crate::line::{Line, Sight};
use crate::place::Core;
use crate::session::Lease;
use crate::wire::data;

impl Held {
    /// Frees the lock and makes the node of the next claim, at the end of the line.
    pub(crate) async fn release_to(
        self: Arc<Self>,
        core: Arc<Core>,
        place: Arc<Place>,
        next: Arc<Claim>,
        turn: Turn,
    ) -> Result<(Released, Option<Attempt>)> {
        let mut known = turn.await;
        let is_new = known.node.is_none() && !known.unsure;
        if place.path != self.place.path
            || !next.renewed
            || next.ttl != self.lease.ttl()
            || !self.lease.shared
            || !is_new
        {
            if is_new {
                core.forget_empty(next.owner, &place);
            }
            let turn = self.place.turn().await;
            return Ok((self.release(turn).await?, None));
        }
        let mut own = self.place.known.lock().await;
        if !self.lease.lives() {
            core.forget_empty(next.owner, &place);
            return Ok((Released::NotOwner, None));
        }
        let client = self.lease.client().await?;
        known.lease = Some(self.lease.clone());
        let lease = &self.lease;
        lease
            .while_connected(async {
                let has_slot = self.has_slot(&client).await?;
                let leaving = Leaving::begin(&mut own, lease);
                let replaced =
                    if has_slot { self.replace(&core, &client, &place, &next, &mut known).await } else { Ok(None) };
                let (deleted, entered) = match replaced {
                    Ok(Some(line)) => (Ok(Deleted::All), Ok(Some(line))),
                    // The lock was lost before. The next caller asks all the same.
                    Ok(None) => (Ok(Deleted::Missing), place.enter(&core, &client, lease, &next, &mut known).await),
                    Err(error) => (Err(error), Ok(None)),
                };
                let released = self.settle(&client, leaving, deleted, &mut own).await?;
                let answer = match entered? {
                    Some(line) => place.answer(&client, lease, &next, &line, &mut known).await?,
                    None => None,
                };
                if answer.is_none() {
                    place.clear(&client, lease, &mut known).await?;
                    core.forget_empty(next.owner, &place);
                }
                Ok((released, answer))
            })
            .await
    }

    /// Deletes the nodes of the hold and makes the next claim's in one transaction, and reads the line right behind it. It
    /// is one commit of the servers, as a release alone; two requests would be two commits, one after the other. `None`: a
    /// node of the hold was missing, and nothing was done.
    async fn replace(
        &self,
        core: &Core,
        client: &Client,
        place: &Place,
        next: &Claim,
        known: &mut Known,
    ) -> Result<Option<Line>, ClientError> {
        let from = self.lease.clock().now();
        let prefix = place.child(&place.prefix);
        let mut writer = client.new_multi_writer();
        self.nodes.iter().try_for_each(|node| writer.add_delete(node, None))?;
        let options = CreateMode::EphemeralSequential.with_acls(core.acls);
        writer.add_create(&prefix, &data::of(&next.note), &options)?;
        known.unsure = true;
        let (done, listed) = join(writer.commit(), client.list_children(&place.path)).await;
        let mut results = match done {
            Ok(results) => results,
            Err(MultiWriteError::OperationFailed { source: ClientError::NoNode, .. }) => {
                known.unsure = false;
                return Ok(None);
            }
            Err(error) => {
                let error = ClientError::from(error);
                known.unsure = leaves_doubt(&error);
                return Err(error);
            }
        };
        // The next request of the place looks up the rest about its node.
        if let Some(MultiWriteResult::Create { path, stat }) = results.pop()
            && let Some((_, name)) = path.rsplit_once('/')
            // Servers may leave the numbers out (ZOOKEEPER-4667).
            && let Ok(Some(stat)) = if stat.is_invalid() { client.check_stat(&path).await } else { Ok(Some(stat)) }
        {
            known.unsure = false;
            known.node = Some(Node { name: name.to_owned(), token: stat.czxid, since: Some(from) });
        }
        // The release is done, whatever the list says. Without it, the next caller asks for itself.
        Ok(Some(listed.map(|children| Line::of(&children)).unwrap_or_default()))
    }
}

impl Place {
    /// Whether the place holds the lock, or stands behind others. `None`: neither.
    async fn answer(
        self: &Arc<Self>,
        client: &Client,
        lease: &Arc<Lease>,
        claim: &Arc<Claim>,
        line: &Line,
        known: &mut Known,
    ) -> Result<Option<Attempt>> {
        match self.seen(line, known) {
            Sight::First => Ok(self.grant(client, lease, claim, known).await?.map(Attempt::Acquired)),
            Sight::Outside | Sight::Conflict | Sight::Uncounted => Ok(None),
            sight => {
                known.waited = true;
                Ok(Some(Attempt::Contended(self.stand(claim, lease, sight)?)))
            }
        }
    }
}
