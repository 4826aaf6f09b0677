//! The wait queue of one lock, and one place in it: the transactions that enter, read and leave the queue.
//!
//! Each contender has a key `<lock>/<lease>-<owner>`; the one with the lowest create revision holds the lock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{Claim, ErrorKind, LockKey, Note, Owner, Released, Result, Session};
use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
};

use super::connection::Connection;
use super::fault::Fault;
use super::lease::Lease;

/// How often an attempt reads the epoch again if other tasks of this process changed it meanwhile.
const EPOCH_READS: usize = 8;

/// The keys of one lock.
#[derive(Clone, Debug)]
pub(super) struct Line {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl Line {
    pub(super) fn of(key: &LockKey) -> Self {
        // The keys of one lock must not be among those of another, as with `a` and `a/b`. The name has no other `%2F`,
        // because its own `%` is encoded.
        let name = key.as_str().replace('/', "%2F");
        // The end is the first key after all keys that begin with the name and a slash.
        Self { start: format!("{name}/").into_bytes(), end: format!("{name}0").into_bytes() }
    }

    /// What all keys of the lock begin with.
    pub(super) fn name(&self) -> String {
        String::from_utf8_lossy(&self.start).into_owned()
    }

    fn range(&self) -> GetOptions {
        GetOptions::new().with_range(self.end.clone())
    }

    fn first(&self) -> GetOptions {
        self.range().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
    }

    /// The oldest key, which holds the lock, and the number of keys.
    pub(super) async fn holder(&self, connection: &Connection) -> Result<(Option<KeyValue>, u64), Fault> {
        let mut found = connection.get(&self.start, self.first()).await?;
        let keys = u64::try_from(found.count()).unwrap_or_default();
        Ok((found.take_kvs().into_iter().next(), keys))
    }

    /// The note of a holder's key.
    pub(super) fn note_of(&self, key: &KeyValue) -> Note {
        match self.owner_of(key.key()) {
            Some(_) => Note::from_stored(&String::from_utf8_lossy(key.value())),
            None => Note::from_stored(Note::ANOTHER_TOOL),
        }
    }

    /// The owner in a key that a dlock wrote. Others end in their lease alone, such as Go's `Mutex`, or in words of
    /// their own.
    pub(super) fn owner_of(&self, key: &[u8]) -> Option<Owner> {
        let own = std::str::from_utf8(key.strip_prefix(self.start.as_slice())?).ok()?;
        let (lease, owner) = own.split_once('-')?;
        let is_hex = |part: &str, digits| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = u128::from_str_radix(owner, 16).ok().filter(|_| is_hex(lease, 16) && is_hex(owner, 32))?;
        Some(Owner::from_bytes(bytes.to_be_bytes()))
    }
}

/// The name of the lock to which this key of the store belongs, and the first key behind all of that lock's.
pub(super) fn lock_of(key: &[u8]) -> Option<(LockKey, Vec<u8>)> {
    let (name, _) = std::str::from_utf8(key).ok()?.split_once('/')?;
    Some((LockKey::from_stored(&name.replace("%2F", "/"))?, format!("{name}0").into_bytes()))
}

/// The place of one claim in the queue: what this process knows about the claim's key.
pub(super) struct Place {
    pub(super) line: Line,
    pub(super) key: Vec<u8>,
    pub(super) lease: Arc<Lease>,
    /// The number of the lease's epoch for this owner.
    shard: u8,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// The create revision, once the store has confirmed that the key exists.
    pub(super) revision: Option<i64>,
    /// Whether an attempt has told its caller that it holds the lock.
    pub(super) held: bool,
    /// Whether an entering transaction is under way, or was given up without an answer.
    asked: bool,
    /// Whether a transaction may still reach the store. Only a new epoch prevents that.
    unsure: bool,
}

/// The answer of the store about a place.
#[derive(Debug)]
pub(super) enum Sight {
    /// The key exists, and no key is older: the claim holds the lock.
    First,
    /// The key exists behind this older one.
    Behind(Ahead),
    /// The key does not exist.
    Outside,
    /// The lock is held, and the key was not put.
    Refused(Note),
}

/// The next older key in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) key: Vec<u8>,
    create_revision: i64,
    /// The revision of the store at which it was seen.
    pub(super) seen: i64,
}

/// Holds on one lease are one group.
impl Session for Place {
    fn group(&self) -> Option<u64> {
        Some(self.lease.id as u64)
    }
}

impl Place {
    pub(super) fn new(claim: &Claim, lease: Arc<Lease>) -> Self {
        let line = Line::of(&claim.key);
        let own = format!("{:016x}-{}", lease.id, claim.owner.to_hex());
        let key = [line.start.as_slice(), own.as_bytes()].concat();
        Self { line, key, lease, shard: claim.owner.as_bytes()[0], known: Mutex::default() }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orphan(&self) -> (u8, Vec<u8>) {
        (self.shard, self.key.clone())
    }

    /// Whether the store may have more of this claim than its caller knows, or has told the caller that it holds the
    /// lock.
    pub(super) fn is_asked_again(&self) -> bool {
        let known = self.known();
        known.held || known.asked || known.unsure
    }

    /// Puts the key, at the end of the queue or only if there is no queue, and returns its place.
    pub(super) async fn enter(&self, connection: &Connection, claim: &Claim, wait: bool) -> Result<Sight, Fault> {
        for _ in 0..EPOCH_READS {
            let epoch = self.lease.epoch(self.shard).load(Ordering::Acquire);
            {
                let mut known = self.known();
                known.unsure |= known.asked;
                known.asked = true;
            }
            let answer = connection.txn(self.entering(claim, wait, epoch)).await?;
            self.known().asked = false;
            let revision = answer.header().map_or(0, |header| header.revision());
            let mut parts = answer.op_responses().into_iter();
            if answer.succeeded() {
                self.known().revision = Some(revision);
                return match parts.nth(1) {
                    Some(TxnOpResponse::Get(newest)) => self.sight(revision, newest, revision),
                    _ => Ok(Sight::First),
                };
            }
            let mut part = || match parts.next() {
                Some(TxnOpResponse::Get(found)) => Ok(found.kvs().first().cloned()),
                _ => Err(nonsense("a part is missing from the answer to a transaction")),
            };
            let (own, now, first) = (part()?, part()?, part()?);
            self.lease.epoch(self.shard).store(now.map_or(0, |epoch| epoch.mod_revision()), Ordering::Release);
            if let Some(own) = own {
                // The answer of an earlier attempt was lost.
                self.known().revision = Some(own.create_revision());
                return self.look(connection, own.create_revision()).await;
            }
            if let Some(first) = first.filter(|_| !wait) {
                no_stranger(&first)?;
                return Ok(Sight::Refused(self.line.note_of(&first)));
            }
        }
        Err(Fault::Refused(ErrorKind::Outage, "too many abandoned attempts of this process at once".into()))
    }

    fn entering(&self, claim: &Claim, wait: bool, epoch: i64) -> Txn {
        let untouched = Compare::mod_revision(self.lease.epoch_key(self.shard), CompareOp::Equal, epoch);
        let put = TxnOp::put(self.key.clone(), claim.note.as_str(), Some(PutOptions::new().with_lease(self.lease.id)));
        let (free, then) = if wait {
            let absent = Compare::create_revision(self.key.clone(), CompareOp::Equal, 0);
            // Our key is the newest, so the second newest key is the one ahead.
            let newest = self.line.range().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2);
            (absent, vec![put, TxnOp::get(self.line.start.clone(), Some(newest.with_keys_only()))])
        } else {
            let empty = Compare::create_revision(self.line.start.clone(), CompareOp::Equal, 0);
            (empty.with_range(self.line.end.clone()), vec![put])
        };
        let own = TxnOp::get(self.key.clone(), Some(GetOptions::new().with_keys_only()));
        let now = TxnOp::get(self.lease.epoch_key(self.shard), None);
        // With its value, which is the note, so that the error of a caller that does not wait names the holder.
        let first = TxnOp::get(self.line.start.clone(), Some(self.line.first()));
        Txn::new().when([untouched, free]).and_then(then).or_else([own, now, first])
    }

    /// The place of our key, by a linearizable read.
    pub(super) async fn look(&self, connection: &Connection, revision: i64) -> Result<Sight, Fault> {
        let up_to_ours = self.line.range().with_max_create_revision(revision).with_keys_only();
        let newest = up_to_ours.with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2);
        let found = connection.get(&self.line.start, newest).await?;
        let seen = found.header().map_or(0, |header| header.revision());
        self.sight(revision, found, seen)
    }

    fn sight(&self, revision: i64, newest: GetResponse, seen: i64) -> Result<Sight, Fault> {
        let mut keys = newest.kvs().iter();
        if keys.next().is_none_or(|own| own.key() != self.key || own.create_revision() != revision) {
            return Ok(Sight::Outside);
        }
        let Some(ahead) = keys.next() else { return Ok(Sight::First) };
        no_stranger(ahead)?;
        Ok(Sight::Behind(Ahead { key: ahead.key().to_vec(), create_revision: ahead.create_revision(), seen }))
    }

    /// Deletes the key, if it has the revision that was granted.
    pub(super) async fn release(&self, connection: &Connection, revision: i64) -> Result<Released, Fault> {
        let leaving = Leaving::of(self);
        let same = Compare::create_revision(self.key.clone(), CompareOp::Equal, revision);
        // An earlier attempt that may still arrive would put the key again.
        let bump = leaving.unsure.then(|| self.lease.bump(self.shard));
        let then: Vec<_> = [TxnOp::delete(self.key.clone(), None)].into_iter().chain(bump.clone()).collect();
        let txn = Txn::new().when([same]).and_then(then).or_else(bump.into_iter().collect::<Vec<_>>());
        match connection.txn(txn).await {
            Ok(answer) => {
                leaving.done(answer.header().map(|header| header.revision()));
                Ok(if answer.succeeded() { Released::Released } else { Released::NotOwner })
            }
            Err(Fault::LeaseGone) => {
                leaving.done(None);
                Ok(Released::NotOwner)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Deletes the key if it exists, and stops transactions that may still be under way.
    pub(super) async fn leave(&self, connection: &Connection) -> Result<(), Fault> {
        let leaving = Leaving::of(self);
        let delete = TxnOp::delete(self.key.clone(), None);
        let revision = self.known().revision;
        let txn = match revision {
            _ if leaving.unsure => Txn::new().and_then([delete, self.lease.bump(self.shard)]),
            Some(revision) => Txn::new()
                .when([Compare::create_revision(self.key.clone(), CompareOp::Equal, revision)])
                .and_then([delete]),
            // The store has said that there is no key.
            None => {
                leaving.done(None);
                return Ok(());
            }
        };
        match connection.txn(txn).await {
            Ok(answer) => leaving.done(answer.header().map(|header| header.revision())),
            Err(Fault::LeaseGone) => leaving.done(None),
            Err(Fault::NoSpace) => {
                // The epoch cannot be put now, but the lock can be freed. The key stays an orphan until the epoch is
                // put.
                connection.txn(Txn::new().and_then([TxnOp::delete(self.key.clone(), None)])).await?;
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }
}

/// If the success of leaving is not confirmed, the key becomes an orphan, and the next renewal of the lease deletes it.
struct Leaving<'a> {
    place: &'a Place,
    unsure: bool,
    done: bool,
}

impl<'a> Leaving<'a> {
    fn of(place: &'a Place) -> Self {
        let known = place.known();
        Self { place, unsure: known.asked || known.unsure, done: false }
    }

    fn done(mut self, revision: Option<i64>) {
        let lease = &self.place.lease;
        if let (true, Some(revision)) = (self.unsure, revision) {
            lease.epoch(self.place.shard).store(revision, Ordering::Release);
        }
        lease.orphans().remove(&self.place.orphan());
        *self.place.known() = Known::default();
        self.done = true;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // A lease of its own ends by itself.
        if !self.done && self.place.lease.shared {
            self.place.lease.orphans().insert(self.place.orphan());
        }
    }
}

/// A key without a lease is no place of a waiter or a holder: waiting for it could last for ever.
fn no_stranger(key: &KeyValue) -> Result<(), Fault> {
    if key.lease() == 0 {
        let text = "the lock's name in etcd has a foreign key without a lease, which would never end; delete that key"
            .to_owned();
        return Err(Fault::Refused(ErrorKind::KeyConflict, text));
    }
    Ok(())
}

fn nonsense(text: &str) -> Fault {
    Fault::Refused(ErrorKind::Protocol, text.to_owned())
}
