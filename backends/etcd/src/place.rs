//! One claim's place in the wait queue of a lock: its key, and the state of that key as far as this process knows it.
//!
//! Create revisions order the keys. An exclusive claim or a writer holds the lock if no key is older. A reader holds it if
//! no writer's key is older. A claim for a permit holds one if the number of older keys is below the number of permits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Hold, Mode, Result, Session};
use dlock_store::is_forked;
use etcd_client::KeyValue;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::key_numbers::KeyNumber;
use super::lease::Lease;
use super::names::{self, LockRange};

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
        let number = lease.key_numbers.take(range.key(claim.mode, ""), now);
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

/// The error for a token that is not higher than the revisions seen before. A resource that compares tokens would refuse
/// this holder, or accept an older one.
fn revision_went_back(revision: i64, seen: i64) -> Error {
    let text = format!(
        "etcd has lost revisions: it gave the fencing token {revision} after revision {seen} was seen; if a backup was \
         restored, restore it again with `--bump-revision`"
    );
    Error::new(ErrorKind::FenceRegression, text)
}
