//! A release that also puts the key of the process's next caller into the queue: one commit of the server instead of two.

use std::sync::Arc;

use dlock_contract::{Attempt, BootInstant, Claim, Exchange, Hold, Queue, Released, Result};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures::future::BoxFuture;

use super::combine::Scope;
use super::connection::Connection;
use super::fault::Fault;
use super::leave::PendingLeave;
use super::place::Place;
use super::position::Position;
use super::store::{Etcd, held};

impl Exchange for Etcd {
    fn release_to<'a>(
        &'a self,
        hold: &'a Hold,
        next: &'a Arc<Claim>,
        until: BootInstant,
    ) -> BoxFuture<'a, Result<(Released, Option<Attempt>)>> {
        Box::pin(self.release_to_next(hold, next, until))
    }
}

impl Etcd {
    async fn release_to_next(
        &self,
        hold: &Hold,
        next: &Arc<Claim>,
        until: BootInstant,
    ) -> Result<(Released, Option<Attempt>)> {
        let (place, revision) = held(hold)?;
        let may_combine = place.mode == next.mode && !next.mode.is_shared() && next.renewed && place.lease.shared;
        if !may_combine || place.is_in_doubt() {
            return Ok((self.release_hold(hold).await?, None));
        }
        let connection = self.connections.get().await?;
        // Without a lease for the next caller, only release. The next caller then makes its own attempt.
        let Ok(after) = self.place(&connection, next).await else {
            return Ok((self.release_hold(hold).await?, None));
        };
        let position = match place.release_to(&connection, revision, &after).await {
            Ok(position) => position,
            // Without a lease for the next caller, a plain release may still succeed.
            Err(Fault::LeaseGone) => None,
            Err(Fault::NoSpace) => return self.release_without_space(hold, next).await,
            Err(fault) => return Err(fault.into()),
        };
        if let Some(position) = position {
            self.forget(place, hold.claim.owner);
            let answer = self.to_attempt(connection, next, &after, true, position).await?;
            return Ok((Released::Released, Some(answer)));
        }
        self.forget(&after, next.owner);
        match self.release_hold(hold).await? {
            Released::Released => Ok((Released::Released, None)),
            // The lock was lost before, so the next caller may find it free.
            Released::NotOwner => Ok((Released::NotOwner, Some(self.attempt(next, Queue::until(until)).await?))),
        }
    }

    /// Releases alone, because the server had no space for the next caller's key. When the server runs out of space, it
    /// may put the key and still report that it has no space. That key must not stay.
    async fn release_without_space(&self, hold: &Hold, next: &Claim) -> Result<(Released, Option<Attempt>)> {
        match self.release_hold(hold).await? {
            Released::Released => {
                self.abandon_claim(next.owner).await?;
                Ok((Released::Released, None))
            }
            // The first request may have released the hold. After this error the engine releases again, and abandons
            // the next claim.
            Released::NotOwner => Err(Fault::NoSpace.into()),
        }
    }
}

impl Place {
    /// Deletes our key and puts the key of the next caller. `None`: nothing has changed.
    async fn release_to(&self, connection: &Connection, revision: i64, next: &Self) -> Result<Option<Position>, Fault> {
        let pending = PendingLeave::of(self);
        let epoch = next.begin_entry();
        let when = [
            Compare::create_revision(self.key.clone(), CompareOp::Equal, revision),
            self.compare_lease(),
            next.compare_epoch(epoch),
            Compare::create_revision(next.key.clone(), CompareOp::Equal, 0),
        ];
        // The holder's key excludes keys of other modes, so these need no comparison.
        let mut then = vec![TxnOp::delete(self.key.clone(), None), next.put()];
        then.extend(next.queue_reads(None));
        let mut answers = connection.txn_of(Scope::of(&self.range), Txn::new().when(when).and_then(then)).await?;
        next.state().entering = false;
        if !answers.succeeded {
            // The caller releases next.
            pending.cancel();
            return Ok(None);
        }
        pending.confirmed(None);
        next.state().revision = Some(answers.revision);
        next.position(answers.revision, &mut answers).map(Some)
    }
}
