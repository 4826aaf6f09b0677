//! The transactions that take a claim's key out of the queue.

use dlock_contract::{Mode, Released, Result};
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};

use super::answers::TxnAnswers;
use super::combine::Scope;
use super::connection::Connection;
use super::fault::Fault;
use super::lease::Orphan;
use super::place::{Place, PlaceState};

impl Place {
    /// Deletes the key if it still has the granted revision.
    pub(super) async fn release(&self, connection: &Connection, revision: i64) -> Result<Released, Fault> {
        let mut then = vec![TxnOp::delete(self.key.clone(), None)];
        then.extend(self.unmark());
        let pending = PendingLeave::of(self);
        match self.leave_queue(connection, revision, then, pending.in_doubt).await {
            Ok(answer) => Ok(pending.confirmed_by(&answer)),
            Err(Fault::LeaseGone) => {
                pending.confirmed(None);
                Ok(Released::NotOwner)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Moves the key to another lease if it still has the granted revision. Its position in the queue stays.
    ///
    /// [`Fault::LeaseGone`]: one of the two leases has ended, and nothing has changed.
    pub(super) async fn keep(&self, connection: &Connection, revision: i64, lease: i64) -> Result<Released, Fault> {
        let on_lease = || Some(PutOptions::new().with_lease(lease));
        let mut then = vec![TxnOp::put(self.key.clone(), self.value.as_str(), on_lease())];
        if let (Mode::Permits(most), Some(slot)) = (self.mode, self.state().slot) {
            then.push(TxnOp::put(self.range.slot_key(most.get(), slot), self.mark(), on_lease()));
        }
        let pending = PendingLeave::of(self);
        let answer = self.leave_queue(connection, revision, then, pending.in_doubt).await?;
        Ok(pending.confirmed_by(&answer))
    }

    async fn leave_queue(
        &self,
        connection: &Connection,
        revision: i64,
        mut then: Vec<TxnOp>,
        in_doubt: bool,
    ) -> Result<TxnAnswers, Fault> {
        let same = Compare::create_revision(self.key.clone(), CompareOp::Equal, revision);
        let mut otherwise = self.unmark();
        if in_doubt {
            // Without this, an earlier transaction that arrives later would put the key again.
            then.push(self.lease.bump_epoch(self.shard));
            otherwise.push(self.lease.bump_epoch(self.shard));
        }
        let txn = Txn::new().when([same, self.compare_lease()]).and_then(then).or_else(otherwise);
        connection.txn_of(self.scope(in_doubt), txn).await
    }

    /// Deletes the key if it exists, and makes transactions fail that may still arrive.
    pub(super) async fn leave(&self, connection: &Connection) -> Result<(), Fault> {
        let pending = PendingLeave::of(self);
        let revision = self.state().revision;
        let mut deletes = vec![self.delete()];
        deletes.extend(self.unmark());
        let bump_epoch = match revision {
            _ if pending.in_doubt => Some(self.lease.bump_epoch(self.shard)),
            Some(_) => None,
            // The store has confirmed that there is no key.
            None => {
                pending.confirmed(None);
                return Ok(());
            }
        };
        let all: Vec<_> = deletes.iter().cloned().chain(bump_epoch).collect();
        match connection.txn_of(self.scope(pending.in_doubt), Txn::new().and_then(all)).await {
            Ok(answer) => pending.confirmed(Some(answer.revision)),
            Err(Fault::LeaseGone) => pending.confirmed(None),
            Err(Fault::NoSpace) => {
                // Without space the epoch key cannot change, but the lock can be freed. The key stays an orphan until
                // the epoch key has changed.
                connection.txn_of(self.scope(false), Txn::new().and_then(deletes)).await?;
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Makes the key an orphan: the next renewal of the lease deletes it.
    pub(super) fn leave_behind(&self) {
        // A lease of one hold ends by itself.
        if self.lease.shared {
            let deletes = [self.delete()].into_iter().chain(self.unmark()).collect();
            let orphan = Orphan { deletes, due: self.state().kept_until, _number: self.number.clone() };
            self.lease.orphans().insert((self.shard, self.key.clone()), orphan);
        }
    }

    fn scope(&self, bumps_epoch: bool) -> Scope {
        let scope = Scope::of(&self.range);
        if bumps_epoch { scope.and_epoch(self.lease.epoch_key(self.shard)) } else { scope }
    }

    /// Deletes the key, unless `min_hold` keeps it.
    fn delete(&self) -> TxnOp {
        let delete = TxnOp::delete(self.key.clone(), None);
        // If this request arrives late, another claim may have put a key of the same name.
        let ours = Compare::value(self.key.clone(), CompareOp::Equal, self.value.as_str());
        TxnOp::txn(Txn::new().when([ours, self.compare_lease()]).and_then([delete]))
    }

    pub(super) fn compare_lease(&self) -> Compare {
        Compare::lease(self.key.clone(), CompareOp::Equal, self.lease.id)
    }
}

/// A request that takes the key out of the queue. If it is not confirmed, the key becomes an orphan, and the next renewal
/// of the lease deletes it.
pub(super) struct PendingLeave<'a> {
    place: &'a Place,
    in_doubt: bool,
    /// Whether an earlier such request was not confirmed.
    was_leaving: bool,
    done: bool,
}

impl<'a> PendingLeave<'a> {
    pub(super) fn of(place: &'a Place) -> Self {
        let mut state = place.state();
        let was_leaving = std::mem::replace(&mut state.leaving, true);
        Self { place, in_doubt: state.entering || state.in_doubt, was_leaving, done: false }
    }

    fn confirmed_by(self, answer: &TxnAnswers) -> Released {
        self.confirmed(Some(answer.revision));
        if answer.succeeded { Released::Released } else { Released::NotOwner }
    }

    /// The store has confirmed that nothing has changed.
    pub(super) fn cancel(mut self) {
        self.place.state().leaving = self.was_leaving;
        self.done = true;
    }

    pub(super) fn confirmed(mut self, revision: Option<i64>) {
        let Place { lease, shard, key, .. } = self.place;
        if let (true, Some(revision)) = (self.in_doubt, revision) {
            self.place.note_epoch(revision);
        }
        lease.orphans().remove(&(*shard, key.clone()));
        *self.place.state() = PlaceState::default();
        self.done = true;
    }
}

impl Drop for PendingLeave<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.place.leave_behind();
        }
    }
}
