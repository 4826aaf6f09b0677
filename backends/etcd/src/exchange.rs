//! A release that also puts the next caller of the process into the queue: one commit of the store instead of two.

use std::sync::Arc;

use dlock_contract::{Attempt, BootInstant, Claim, Exchange, Hold, Queue, Released, Result};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures::future::BoxFuture;

use super::connection::Connection;
use super::fault::Fault;
use super::leave::Leaving;
use super::place::{Parts, Place, Sight};
use super::store::{Etcd, held};

impl Exchange for Etcd {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(self.give_to(hold, next, until))
    }
}

impl Etcd {
    async fn give_to(&self, hold: &Hold, next: &Arc<Claim>, until: BootInstant) -> Result<(Released, Option<Attempt>)> {
        let (place, revision) = held(hold)?;
        let follows = place.mode == next.mode && !next.mode.is_shared() && next.renewed && place.lease.shared;
        if !follows || place.is_unsure() {
            return Ok((self.give_back(hold).await?, None));
        }
        let connection = self.connections.get().await?;
        // The release matters more: if there is no lease for the next caller, that caller asks by itself.
        let Ok(after) = self.place(&connection, next).await else {
            return Ok((self.give_back(hold).await?, None));
        };
        let sight = match place.release_to(&connection, revision, &after).await {
            Ok(sight) => sight,
            // Without space, or without a lease for the next caller, the lock can be freed all the same.
            Err(Fault::NoSpace | Fault::LeaseGone) => None,
            Err(fault) => return Err(fault.into()),
        };
        if let Some(sight) = sight {
            self.forget(place, hold.claim.owner);
            let answer = self.answer(connection, next, &after, true, sight).await?;
            return Ok((Released::Released, Some(answer)));
        }
        self.forget(&after, next.owner);
        match self.give_back(hold).await? {
            Released::Released => Ok((Released::Released, None)),
            // The lock was lost long ago, and the next caller may find it free.
            Released::NotOwner => Ok((Released::NotOwner, Some(self.attempt(next, Queue::until(until)).await?))),
        }
    }
}

impl Place {
    /// Deletes the key and puts that of the next caller. `None`: nothing has changed.
    async fn release_to(&self, connection: &Connection, revision: i64, next: &Self) -> Result<Option<Sight>, Fault> {
        let leaving = Leaving::of(self);
        let epoch = next.ask_under_epoch();
        let when = [
            Compare::create_revision(self.key.clone(), CompareOp::Equal, revision),
            self.on_our_lease(),
            next.same_epoch(epoch),
            Compare::create_revision(next.key.clone(), CompareOp::Equal, 0),
        ];
        // No other family is in the queue of a hold.
        let mut then = vec![TxnOp::delete(self.key.clone(), None), next.put()];
        then.extend(next.ahead(None));
        let answer = connection.txn(Txn::new().when(when).and_then(then)).await?;
        next.known().asked = false;
        if !answer.succeeded() {
            // The release itself follows.
            leaving.not_yet();
            return Ok(None);
        }
        leaving.done(None);
        let mut parts = Parts::of(&answer);
        next.known().revision = Some(parts.revision);
        next.sight(parts.revision, &mut parts).map(Some)
    }
}
