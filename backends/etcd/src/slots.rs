//! The slots of permits: each taken slot has a key that marks it.
//!
//! A contender that holds a permit takes the lowest slot without a mark. Its transaction compares that the mark has not
//! changed. A mark whose contender has no key counts as free, because an operator may have deleted that key alone.

use std::collections::HashSet;

use dlock_contract::{ErrorKind, Mode};
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};

use super::combine::Scope;
use super::connection::Connection;
use super::fault::Fault;
use super::place::Place;
use super::position::Position;

/// How often a contender tries again after another one has taken its slot.
const MAX_TRIES: usize = 64;

impl Place {
    /// Takes the free slot of the position, if it has one. Returns the position after that.
    pub(super) async fn take_slot(&self, connection: &Connection, position: Position) -> Result<Position, Fault> {
        let Mode::Permits(most) = self.mode else { return Ok(position) };
        let mut position = position;
        for _ in 0..MAX_TRIES {
            let Position::SlotFree(free) = position else { return Ok(position) };
            let mark = self.range.slot_key(most.get(), free.slot);
            self.state().tried.push(free.slot);
            let on_lease = || Some(PutOptions::new().with_lease(self.lease.id));
            // The key changes too. So if two transactions of this place ask for different slots, one of them fails.
            let mut same = vec![Compare::mod_revision(self.key.clone(), CompareOp::Equal, free.changed)];
            let before = free.stale.as_ref().map_or(0, |stale| stale.changed);
            same.push(Compare::mod_revision(mark.clone(), CompareOp::Equal, before));
            if let Some(stale) = free.stale {
                same.push(Compare::create_revision(stale.key, CompareOp::Equal, 0));
            }
            let then = [
                TxnOp::put(self.key.clone(), self.value.as_str(), on_lease()),
                TxnOp::put(mark, self.mark(), on_lease()),
            ];
            let own = TxnOp::get(self.key.clone(), None);
            let otherwise = [own].into_iter().chain(self.queue_reads(self.state().revision)).collect::<Vec<_>>();
            let txn = Txn::new().when(same).and_then(then).or_else(otherwise);
            let mut answers = connection.txn_of(Scope::of(&self.range), txn).await?;
            if answers.succeeded {
                self.state().slot = Some(free.slot);
                return Ok(Position::First);
            }
            self.not_marked(free.slot);
            let Some(own) = answers.first_key()?.filter(|own| self.is_mine(own)) else { return Ok(Position::Absent) };
            position = self.position(own.mod_revision(), &mut answers)?;
        }
        Err(Fault::Refused(ErrorKind::Outage, "too many contenders asked for permits of this lock at once".into()))
    }

    /// The value of the mark of its slot, which identifies its owner.
    pub(super) fn mark(&self) -> String {
        let (id, _) = self.value.split_once(' ').unwrap_or_default();
        format!("{} {id}", self.name)
    }

    /// A transaction that asked for this slot has surely failed.
    fn not_marked(&self, slot: u32) {
        let mut state = self.state();
        // An earlier transaction may still ask for it, so remove only the last entry.
        if let Some(at) = state.tried.iter().rposition(|tried| *tried == slot) {
            state.tried.remove(at);
        }
    }

    /// Deletes the marks that this place may have, unless `min_hold` keeps them.
    pub(super) fn unmark(&self) -> Vec<TxnOp> {
        let Mode::Permits(most) = self.mode else { return Vec::new() };
        let marks = self.state().tried.clone();
        let own = |slot| {
            let mark = self.range.slot_key(most.get(), slot);
            let ours = [
                Compare::value(mark.clone(), CompareOp::Equal, self.mark()),
                Compare::lease(mark.clone(), CompareOp::Equal, self.lease.id),
            ];
            TxnOp::txn(Txn::new().when(ours).and_then([TxnOp::delete(mark, None)]))
        };
        marks.into_iter().collect::<HashSet<_>>().into_iter().map(own).collect()
    }
}
