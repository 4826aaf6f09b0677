//! A release that also asks for the next caller of the process, in one breath.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Released, Result};
use futures::future::join;

use super::leave::Leaving;
use super::{Held, Known, Place, Turn};
use crate::line::{Line, Sight};
use crate::place::Core;
use crate::session::Lease;

impl Held {
    /// Frees the lock and makes the node of the next claim, at the end of the line. The server does both in this order,
    /// since one session asks.
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
                let deleting = self.delete(&client, has_slot);
                let entering = place.enter(&core, &client, lease, &next, &mut known);
                let (deleted, entered) = join(deleting, entering).await;
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
}

impl Place {
    /// Whether the place holds the lock, or stands behind others. `None`: neither.
    async fn answer(
        self: &Arc<Self>,
        client: &zookeeper_client::Client,
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
