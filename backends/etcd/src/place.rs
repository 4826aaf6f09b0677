//! One claim's place in the wait queue of a lock: its key, and the state of that key as far as this process knows it.
//!
//! Create revisions order the keys. An exclusive claim or a writer holds the lock if no key is older. A reader holds it if
//! no writer's key is older. A claim for a permit holds one if the number of older keys is below the number of permits.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::engine::is_forked;
use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Hold, Mode, Note, Result, Session};
use etcd_client::{GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::answers::TxnAnswers;
use super::connection::Connection;
use super::fault::Fault;
use super::key_numbers::KeyNumber;
use super::key_range::KeyRange;
use super::lease::Lease;
use super::names::{self, LockRange};
use super::slots::{self, FreeSlot};

/// A waiter with at most this many older keys watches all of them. More would make the server report each release to more
/// waiters.
const NEAR: usize = 3;

/// The place of one claim in the queue.
pub(super) struct Place {
    pub(super) range: LockRange,
    pub(super) mode: Mode,
    pub(super) key: Vec<u8>,
    /// The lease and the number, as the key's name has them.
    pub(super) name: String,
    /// The value of the key, which no other claim writes.
    pub(super) value: String,
    pub(super) number: Arc<KeyNumber>,
    pub(super) lease: Arc<Lease>,
    /// Which of the lease's epoch keys this owner uses.
    pub(super) shard: u8,
    /// The claim's previous place, which a late request may still end. While this one exists, no other claim gets the
    /// name of that key.
    _previous: Option<Arc<Self>>,
    state: Mutex<PlaceState>,
}

/// The knowledge that this process has of the key of a place.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceState {
    /// The create revision, once the store has confirmed that the key exists.
    pub(super) revision: Option<i64>,
    /// Whether an attempt has granted the lock to its caller.
    pub(super) held: bool,
    /// Whether a transaction that puts the key is under way, or its caller gave it up.
    pub(super) entering: bool,
    /// Whether an earlier transaction may still put the key. Only a new epoch prevents that.
    pub(super) in_doubt: bool,
    /// Whether a request that ends the place was sent and is not confirmed. It may arrive at any time.
    pub(super) leaving: bool,
    /// The highest revision that this process had seen before it first put the key. The key's revision is higher.
    pub(super) seen_before: i64,
    /// The slot of a permit.
    pub(super) slot: Option<u32>,
    /// The slots that a transaction has asked for. Each of them may have our mark.
    pub(super) tried: Vec<u32>,
    /// Nothing deletes the key before this time, because `min_hold` keeps the lock.
    pub(super) kept_until: Option<BootInstant>,
}

impl PlaceState {
    /// Whether a request may have put the key.
    fn may_have_key(&self) -> bool {
        self.revision.is_some() || self.entering || self.in_doubt
    }
}

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

/// The holds on one lease end together, so they are one group.
impl Session for Place {
    fn group(&self) -> Option<u64> {
        Some(self.lease.id as u64)
    }

    /// A lease of one hold is never renewed, so no server ends it early.
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        self.lease.shared.then(|| self.lease.clone().ended().boxed())
    }
}

impl Place {
    pub(super) fn new(
        claim: &Claim,
        range: LockRange,
        lease: Arc<Lease>,
        now: BootInstant,
        previous: Option<Arc<Self>>,
    ) -> Self {
        let number = KeyNumber::take(&lease, range.key(claim.mode, ""), now);
        let name = names::place(lease.id, number.value);
        let (key, value) = (range.key(claim.mode, &name), names::value_of(claim));
        let (mode, shard) = (claim.mode, claim.owner.as_bytes()[0]);
        let (number, state) = (Arc::new(number), Mutex::default());
        Self { range, mode, key, name, value, number, lease, shard, _previous: previous, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, PlaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an earlier request may have put the key, or has granted the lock to its caller.
    pub(super) fn was_asked_before(&self) -> bool {
        let state = self.state();
        state.held || state.entering || state.in_doubt
    }

    /// Whether a transaction may still put the key.
    pub(super) fn is_in_doubt(&self) -> bool {
        let state = self.state();
        state.entering || state.in_doubt
    }

    /// Whether no request can have put the key.
    pub(super) fn is_new(&self) -> bool {
        !self.state().may_have_key()
    }

    /// Whether this key of the store is ours. A key that `min_hold` keeps has our name, but another lease.
    pub(super) fn is_mine(&self, key: &KeyValue) -> bool {
        key.key() == self.key && key.lease() == self.lease.id
    }

    /// The hold of a place that holds the lock, as the store has confirmed.
    pub(super) fn granted(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Hold> {
        let (revision, slot) = {
            let mut state = self.state();
            let revision = state.revision.unwrap_or_default();
            if revision <= state.seen_before {
                return Err(revision_went_back(revision, state.seen_before));
            }
            state.held = true;
            (revision, state.slot)
        };
        let token = u64::try_from(revision).unwrap_or_default();
        let hold = Hold::new(claim.clone(), token, self.lease.validity())?.with_session(self.clone());
        Ok(match slot {
            Some(slot) => hold.with_slot(slot),
            None => hold,
        })
    }

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
                    return Ok(slots::find(self, changed, places.kvs(), before, marks.kvs()));
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

impl Drop for Place {
    /// The engine gives some releases up before any request has left. Then nobody else knows the key.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.may_have_key() && !is_forked() {
            self.leave_behind();
        }
    }
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

/// The error for a token that is not higher than the revisions seen before. A resource that compares tokens would refuse
/// this holder, or accept an older one.
fn revision_went_back(revision: i64, seen: i64) -> Error {
    let text = format!(
        "etcd has lost revisions: it gave the fencing token {revision} after revision {seen} was seen; if a backup was \
         restored, restore it again with `--bump-revision`"
    );
    Error::new(ErrorKind::FenceRegression, text)
}
