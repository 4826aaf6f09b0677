//! The transactions that take a claim's key out of the queue.

use dlock_contract::{BootInstant, Mode, Released, Result};
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnResponse};

use super::connection::Connection;
use super::fault::Fault;
use super::lease::Orphan;
use super::place::{Known, Place};

impl Place {
    /// Deletes the key, if it has the revision that was granted.
    pub(super) async fn release(&self, connection: &Connection, revision: i64) -> Result<Released, Fault> {
        let mut then = vec![TxnOp::delete(self.key.clone(), None)];
        then.extend(self.unmark());
        let leaving = Leaving::of(self);
        match self.end(connection, revision, then, leaving.unsure).await {
            Ok(answer) => Ok(leaving.ended(&answer)),
            Err(Fault::LeaseGone) => {
                leaving.done(None);
                Ok(Released::NotOwner)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Moves the key, if it has the revision that was granted, to another lease. It keeps its place in the queue. If the
    /// answer is lost, the key is not deleted before `until`.
    ///
    /// [`Fault::LeaseGone`]: one of both leases has ended, and nothing has changed.
    pub(super) async fn keep(
        &self,
        connection: &Connection,
        revision: i64,
        lease: i64,
        until: BootInstant,
    ) -> Result<Released, Fault> {
        let on_lease = || Some(PutOptions::new().with_lease(lease));
        let mut then = vec![TxnOp::put(self.key.clone(), self.value.as_str(), on_lease())];
        if let (Mode::Permits(most), Some(slot)) = (self.mode, self.known().slot) {
            then.push(TxnOp::put(self.line.slot_key(most.get(), slot), self.mark(), on_lease()));
        }
        let mut leaving = Leaving::of(self);
        leaving.due = until;
        let answer = self.end(connection, revision, then, leaving.unsure).await?;
        Ok(leaving.ended(&answer))
    }

    async fn end(
        &self,
        connection: &Connection,
        revision: i64,
        mut then: Vec<TxnOp>,
        unsure: bool,
    ) -> Result<TxnResponse, Fault> {
        let same = Compare::create_revision(self.key.clone(), CompareOp::Equal, revision);
        let mut otherwise = self.unmark();
        if unsure {
            // An earlier attempt that may still arrive would put the key again.
            then.push(self.lease.bump(self.shard));
            otherwise.push(self.lease.bump(self.shard));
        }
        let txn = Txn::new().when([same, self.on_our_lease()]).and_then(then).or_else(otherwise);
        connection.txn(txn).await
    }

    /// Deletes the key if it exists, and stops transactions that may still be under way.
    pub(super) async fn leave(&self, connection: &Connection) -> Result<(), Fault> {
        let leaving = Leaving::of(self);
        let revision = self.known().revision;
        let mut deletes = vec![self.delete()];
        deletes.extend(self.unmark());
        let bump = match revision {
            _ if leaving.unsure => Some(self.lease.bump(self.shard)),
            Some(_) => None,
            // The store has said that there is no key.
            None => {
                leaving.done(None);
                return Ok(());
            }
        };
        let all: Vec<_> = deletes.iter().cloned().chain(bump).collect();
        match connection.txn(Txn::new().and_then(all)).await {
            Ok(answer) => leaving.done(answer.header().map(|header| header.revision())),
            Err(Fault::LeaseGone) => leaving.done(None),
            Err(Fault::NoSpace) => {
                // The epoch cannot be put now, but the lock can be freed. The key stays an orphan until the epoch is
                // put.
                connection.txn(Txn::new().and_then(deletes)).await?;
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Deletes the key, unless it is kept.
    fn delete(&self) -> TxnOp {
        let delete = TxnOp::delete(self.key.clone(), None);
        // A request that comes late finds what another claim has put under the same name.
        let ours = Compare::value(self.key.clone(), CompareOp::Equal, self.value.as_str());
        TxnOp::txn(Txn::new().when([ours, self.on_our_lease()]).and_then([delete]))
    }

    pub(super) fn on_our_lease(&self) -> Compare {
        Compare::lease(self.key.clone(), CompareOp::Equal, self.lease.id)
    }
}

/// If the success of leaving is not confirmed, the key becomes an orphan, and the next renewal of the lease deletes it.
pub(super) struct Leaving<'a> {
    place: &'a Place,
    unsure: bool,
    /// Whether an earlier request is not confirmed either.
    again: bool,
    /// The key is not deleted before.
    due: BootInstant,
    done: bool,
}

impl<'a> Leaving<'a> {
    pub(super) fn of(place: &'a Place) -> Self {
        let mut known = place.known();
        let again = std::mem::replace(&mut known.leaving, true);
        Self { place, unsure: known.asked || known.unsure, again, due: BootInstant::from_nanos(0), done: false }
    }

    fn ended(self, answer: &TxnResponse) -> Released {
        self.done(answer.header().map(|header| header.revision()));
        if answer.succeeded() { Released::Released } else { Released::NotOwner }
    }

    /// The store has said that nothing has changed.
    pub(super) fn not_yet(mut self) {
        self.place.known().leaving = self.again;
        self.done = true;
    }

    pub(super) fn done(mut self, revision: Option<i64>) {
        let Place { lease, shard, key, .. } = self.place;
        if let (true, Some(revision)) = (self.unsure, revision) {
            self.place.learn_epoch(revision);
        }
        lease.orphans().remove(&(*shard, key.clone()));
        *self.place.known() = Known::default();
        self.done = true;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let Place { lease, shard, key, .. } = self.place;
        // A lease of its own ends by itself.
        if !self.done && lease.shared {
            let deletes = [self.place.delete()].into_iter().chain(self.place.unmark()).collect();
            let orphan = Orphan { deletes, due: self.due, _seat: self.place.seat.clone() };
            lease.orphans().insert((*shard, key.clone()), orphan);
        }
    }
}
