//! The slots of permits: a mark for each slot that is taken.
//!
//! A contender that has room takes the lowest slot without a mark, by a transaction that compares that the mark is still
//! as it was. A mark whose contender's key is gone counts as free: an operator may have deleted that key alone.

use std::collections::{HashMap, HashSet};

use dlock_contract::{Claim, ErrorKind, Mode, Result};
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};

use super::connection::Connection;
use super::fault::Fault;
use super::names::Kind;
use super::place::{Parts, Place, Sight};

/// How often a contender looks again after another one has taken its slot.
const MARKINGS: usize = 64;

/// The slot that a contender may take.
#[derive(Debug)]
pub(super) struct Room {
    slot: u32,
    /// The revision at which the contender's key was last changed.
    changed: i64,
    /// The mark of a key that is gone.
    stale: Option<Stale>,
}

#[derive(Debug)]
struct Stale {
    changed: i64,
    key: Vec<u8>,
}

/// The slot of a contender that has room, or the one that it may take. `places` are the keys of all contenders, of which
/// the first `before` are older.
pub(super) fn find(place: &Place, changed: i64, places: &[KeyValue], before: usize, marks: &[KeyValue]) -> Sight {
    let name = |key: &KeyValue| place.line.read(key.key()).1.as_bytes().to_vec();
    let present: HashSet<_> = places.iter().map(name).collect();
    let (mut taken, mut stale) = (HashMap::new(), HashMap::new());
    for mark in marks {
        let Kind::Slot(slot) = place.line.read(mark.key()).0 else { continue };
        if mark.value() == place.name.as_bytes() {
            let mut known = place.known();
            known.slot = Some(slot);
            known.tried.push(slot);
            return Sight::First;
        }
        if present.contains(mark.value()) {
            taken.insert(slot, mark.value());
        } else {
            let key = String::from_utf8_lossy(mark.value());
            stale.insert(slot, Stale { changed: mark.mod_revision(), key: place.line.key(place.mode, &key) });
        }
    }
    // Each older contender that has no slot yet takes one of the lowest.
    let marked: HashSet<_> = taken.values().copied().collect();
    let unmarked = places.iter().take(before).filter(|key| !marked.contains(name(key).as_slice())).count();
    let slot = (0..).filter(|slot| !taken.contains_key(slot)).nth(unmarked).unwrap_or_default();
    Sight::Room(Room { slot, changed, stale: stale.remove(&slot) })
}

impl Place {
    /// Takes the slot for which there is room. Gives what the store then says of the place.
    pub(super) async fn settle(&self, connection: &Connection, claim: &Claim, sight: Sight) -> Result<Sight, Fault> {
        let Mode::Permits(most) = self.mode else { return Ok(sight) };
        let mut sight = sight;
        for _ in 0..MARKINGS {
            let Sight::Room(room) = sight else { return Ok(sight) };
            let mark = self.line.slot_key(most.get(), room.slot);
            self.known().tried.push(room.slot);
            let on_lease = || Some(PutOptions::new().with_lease(self.lease.id));
            // The key changes too: of two transactions of this place that ask for different slots, one fails.
            let mut same = vec![Compare::mod_revision(self.key.clone(), CompareOp::Equal, room.changed)];
            let before = room.stale.as_ref().map_or(0, |stale| stale.changed);
            same.push(Compare::mod_revision(mark.clone(), CompareOp::Equal, before));
            if let Some(stale) = room.stale {
                same.push(Compare::create_revision(stale.key, CompareOp::Equal, 0));
            }
            let then = [
                TxnOp::put(self.key.clone(), claim.note.as_str(), on_lease()),
                TxnOp::put(mark, self.name.as_str(), on_lease()),
            ];
            let own = TxnOp::get(self.key.clone(), None);
            let otherwise = [own].into_iter().chain(self.ahead(self.known().revision)).collect::<Vec<_>>();
            let answer = connection.txn(Txn::new().when(same).and_then(then).or_else(otherwise)).await?;
            if answer.succeeded() {
                self.known().slot = Some(room.slot);
                return Ok(Sight::First);
            }
            self.not_marked(room.slot);
            let mut parts = Parts::of(&answer);
            let Some(own) = parts.first()?.filter(|own| self.is_mine(own)) else { return Ok(Sight::Outside) };
            sight = self.sight(own.mod_revision(), &mut parts)?;
        }
        Err(Fault::Refused(ErrorKind::Outage, "too many contenders asked for permits of this lock at once".into()))
    }

    /// A transaction that asked for this slot has surely failed.
    fn not_marked(&self, slot: u32) {
        let mut known = self.known();
        // An earlier one may still be under way.
        if let Some(at) = known.tried.iter().rposition(|tried| *tried == slot) {
            known.tried.remove(at);
        }
    }

    /// Deletes the marks that this place may have, unless they are kept.
    pub(super) fn unmark(&self) -> Vec<TxnOp> {
        let Mode::Permits(most) = self.mode else { return Vec::new() };
        let marks = self.known().tried.clone();
        let own = |slot| {
            let mark = self.line.slot_key(most.get(), slot);
            let ours = [
                Compare::value(mark.clone(), CompareOp::Equal, self.name.as_str()),
                Compare::lease(mark.clone(), CompareOp::Equal, self.lease.id),
            ];
            TxnOp::txn(Txn::new().when(ours).and_then([TxnOp::delete(mark, None)]))
        };
        marks.into_iter().collect::<HashSet<_>>().into_iter().map(own).collect()
    }
}
