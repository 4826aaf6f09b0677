//! Where a place stands in the queue: whether it holds the lock, and else which older keys it waits for.

use std::collections::{HashMap, HashSet};

use dlock_contract::{ErrorKind, Mode, Note};
use etcd_client::{GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp};

use super::answers::TxnAnswers;
use super::connection::Connection;
use super::fault::Fault;
use super::key_range::KeyRange;
use super::names::KeyKind;
use super::place::Place;

/// A waiter with at most this many older keys watches all of them. More would make the server report each release to more
/// waiters.
const NEAR: usize = 3;

/// The position of a place in the queue, as the store answered it.
#[derive(Debug)]
pub(super) enum Position {
    /// The claim holds the lock.
    First,
    /// The claim holds a permit, and has not marked its slot yet.
    SlotFree(FreeSlot),
    /// The key exists, and waits for older keys.
    Behind(Blocked),
    /// The key does not exist.
    Absent,
    /// Another claim holds the lock, and the key was not put.
    Refused(Note),
}

/// The reason why a place does not hold the lock.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) blocker: Blocker,
    /// The revision of the store at which this was read.
    pub(super) revision: i64,
}

#[derive(Debug)]
pub(super) enum Blocker {
    /// This older key must be deleted before the queue is worth reading again.
    Key(Vec<u8>),
    /// This many of these keys must be deleted. They are all keys of the range that are older.
    Keys { range: KeyRange, keys: HashSet<Vec<u8>>, count: usize },
}

/// A slot that a contender may take.
#[derive(Debug)]
pub(super) struct FreeSlot {
    pub(super) slot: u32,
    /// The revision at which the contender's key was last changed.
    pub(super) changed: i64,
    /// The mark of a contender that has no key any more.
    pub(super) stale: Option<Stale>,
}

#[derive(Debug)]
pub(super) struct Stale {
    pub(super) changed: i64,
    pub(super) key: Vec<u8>,
}

impl Place {
    /// Reads the position of our key, by a linearizable read.
    pub(super) async fn read_position(&self, connection: &Connection, revision: i64) -> Result<Position, Fault> {
        let own = TxnOp::get(self.key.clone(), Some(GetOptions::new().with_keys_only()));
        let all = [own].into_iter().chain(self.queue_reads(Some(revision)));
        let mut answers = connection.txn(Txn::new().and_then(all.collect::<Vec<_>>())).await?;
        let own = answers.first_key()?.filter(|own| own.create_revision() == revision && self.is_mine(own));
        match own {
            Some(own) => self.position(own.mod_revision(), &mut answers),
            None => Ok(Position::Absent),
        }
    }

    /// The reads that show which keys are older than ours. Without a revision ours is the newest key.
    pub(super) fn queue_reads(&self, revision: Option<i64>) -> Vec<TxnOp> {
        let up_to_ours = |options: GetOptions| {
            let options = options.with_keys_only();
            if let Some(revision) = revision { options.with_max_create_revision(revision) } else { options }
        };
        let newest =
            |options, limit| up_to_ours(options).with_sort(SortTarget::Create, SortOrder::Descend).with_limit(limit);
        match self.mode {
            // Our own key, those that are near, and one more to see whether there are more.
            Mode::Exclusive | Mode::Write => vec![self.range.all().get(|options| newest(options, NEAR as i64 + 2))],
            Mode::Read => vec![self.range.contenders(Mode::Write).get(|options| newest(options, 1))],
            Mode::Permits(most) => {
                // Younger keys too, because their claims may have marked slots already.
                let oldest =
                    |options: GetOptions| options.with_keys_only().with_sort(SortTarget::Create, SortOrder::Ascend);
                vec![self.range.contenders(self.mode).get(oldest), self.range.slots(most.get()).get(|options| options)]
            }
        }
    }

    /// The position that the reads of [`queue_reads`](Self::queue_reads) show. The key was last changed at `changed`.
    pub(super) fn position(&self, changed: i64, answers: &mut TxnAnswers) -> Result<Position, Fault> {
        let revision = answers.revision;
        let blocker = match self.mode {
            Mode::Permits(most) => {
                let (places, marks) = (answers.next_get()?, answers.next_get()?);
                let before = places.kvs().iter().take_while(|key| key.key() != self.key).count();
                let limit = usize::try_from(most.get()).unwrap_or(usize::MAX);
                if before < limit {
                    return Ok(find_slot(self, changed, places.kvs(), before, marks.kvs()));
                }
                let keys = places.kvs().iter().take(before).map(|key| key.key().to_vec()).collect();
                Blocker::Keys { range: self.range.contenders(self.mode), keys, count: before - limit + 1 }
            }
            _ => {
                let newest = answers.next_get()?;
                let older: Vec<_> = newest.kvs().iter().filter(|key| key.key() != self.key).collect();
                older.iter().try_for_each(|key| check_has_lease(key))?;
                let Some(oldest) = older.last() else { return Ok(Position::First) };
                // A reader waits for writers only, and its own key is in another range than theirs.
                if self.mode == Mode::Read || older.len() > NEAR {
                    Blocker::Key(oldest.key().to_vec())
                } else {
                    let keys = older.iter().map(|key| key.key().to_vec()).collect();
                    Blocker::Keys { range: self.range.all(), keys, count: older.len() }
                }
            }
        };
        Ok(Position::Behind(Blocked { blocker, revision }))
    }
}

/// The position of a contender that holds a permit: it has a slot, or may take one. `places` are the keys of all
/// contenders, of which the first `before` are older.
fn find_slot(place: &Place, changed: i64, places: &[KeyValue], before: usize, marks: &[KeyValue]) -> Position {
    let name = |key: &KeyValue| place.range.read(key.key()).1.as_bytes().to_vec();
    let present: HashSet<_> = places.iter().map(name).collect();
    let (mut taken, mut stale) = (HashMap::new(), HashMap::new());
    for mark in marks {
        let KeyKind::Slot(slot) = place.range.read(mark.key()).0 else { continue };
        if mark.value() == place.mark().as_bytes() {
            let mut state = place.state();
            state.slot = Some(slot);
            state.tried.push(slot);
            return Position::First;
        }
        let whose = mark.value().split(|byte| *byte == b' ').next().unwrap_or_default();
        if present.contains(whose) {
            taken.insert(slot, whose);
        } else {
            let key = String::from_utf8_lossy(whose);
            stale.insert(slot, Stale { changed: mark.mod_revision(), key: place.range.key(place.mode, &key) });
        }
    }
    // Leave one of the lowest slots to each older contender that has none yet.
    let marked: HashSet<_> = taken.values().copied().collect();
    let unmarked = places.iter().take(before).filter(|key| !marked.contains(name(key).as_slice())).count();
    let slot = (0..).filter(|slot| !taken.contains_key(slot)).nth(unmarked).unwrap_or_default();
    Position::SlotFree(FreeSlot { slot, changed, stale: stale.remove(&slot) })
}

/// A key without a lease belongs to no waiter and no holder. It never ends by itself, so waiting for it could last for ever.
pub(super) fn check_has_lease(key: &KeyValue) -> Result<(), Fault> {
    if key.lease() == 0 {
        let text = "below the lock's name etcd has a key without a lease, which never ends by itself; delete that key"
            .to_owned();
        return Err(Fault::Refused(ErrorKind::KeyConflict, text));
    }
    Ok(())
}
