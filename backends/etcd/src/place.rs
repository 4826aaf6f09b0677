//! One place in the wait queue of a lock: what this process knows about one claim's key, and how the store sees it.
//!
//! Keys are in the order of their create revisions. An exclusive lock or a writer holds if no key is older. A reader
//! holds if no writer's key is older. A permit holds if fewer keys are older than there are permits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlock_contract::{BootInstant, Claim, Error, ErrorKind, Hold, Mode, Note, Result, Session};
use etcd_client::{GetOptions, GetResponse, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::connection::Connection;
use super::fault::Fault;
use super::lease::Lease;
use super::names::{self, Line, Span};
use super::seats::Seat;
use super::slots::{self, Room};

/// The place of one claim in the queue.
pub(super) struct Place {
    pub(super) line: Line,
    pub(super) mode: Mode,
    pub(super) key: Vec<u8>,
    /// The lease and the seat, as they stand in the key.
    pub(super) name: String,
    /// The value of the key, which no other claim writes.
    pub(super) value: String,
    pub(super) seat: Arc<Seat>,
    pub(super) lease: Arc<Lease>,
    /// The number of the lease's epoch for this owner.
    pub(super) shard: u8,
    /// The claim's place before, which a late request may still end. As long as this one is there, no other key of the
    /// claim has that name.
    _former: Option<Arc<Self>>,
    known: Mutex<Known>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The create revision, once the store has confirmed that the key exists.
    pub(super) revision: Option<i64>,
    /// Whether an attempt has told its caller that it holds the lock.
    pub(super) held: bool,
    /// Whether an entering transaction is under way, or was given up without an answer.
    pub(super) asked: bool,
    /// Whether a transaction may still reach the store. Only a new epoch prevents that.
    pub(super) unsure: bool,
    /// Whether a request that ends the place was begun and is not confirmed. It may arrive at any time.
    pub(super) leaving: bool,
    /// The highest revision that this process had seen when it first asked. The key has a higher one.
    pub(super) floor: i64,
    /// The slot of a permit.
    pub(super) slot: Option<u32>,
    /// The slots that a transaction has asked for. Each may have a mark of ours.
    pub(super) tried: Vec<u32>,
}

/// The answer of the store about a place.
#[derive(Debug)]
pub(super) enum Sight {
    /// The claim holds the lock.
    First,
    /// The claim holds a permit, and its slot is not marked yet.
    Room(Room),
    /// The key exists behind others.
    Behind(Ahead),
    /// The key does not exist.
    Outside,
    /// The lock is held, and the key was not put.
    Refused(Note),
}

/// What a place waits for.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    pub(super) until: Until,
    /// The revision of the store at which it was seen.
    pub(super) seen: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The end of this key, which is the next older one.
    Gone(Vec<u8>),
    /// The end of so many older keys of this range.
    Fewer { places: Span, by: usize },
}

/// Holds on one lease are one group.
impl Session for Place {
    fn group(&self) -> Option<u64> {
        Some(self.lease.id as u64)
    }
}

impl Place {
    pub(super) fn new(
        claim: &Claim,
        line: Line,
        lease: Arc<Lease>,
        now: BootInstant,
        former: Option<Arc<Self>>,
    ) -> Self {
        let seat = Seat::take(&lease, line.key(claim.mode, ""), now);
        let name = names::place(lease.id, seat.number);
        let (key, value) = (line.key(claim.mode, &name), names::value_of(claim));
        let (mode, shard) = (claim.mode, claim.owner.as_bytes()[0]);
        let (seat, known) = (Arc::new(seat), Mutex::default());
        Self { line, mode, key, name, value, seat, lease, shard, _former: former, known }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store may have more of this claim than its caller knows, or has told the caller that it holds the
    /// lock.
    pub(super) fn is_asked_again(&self) -> bool {
        let known = self.known();
        known.held || known.asked || known.unsure
    }

    /// Whether a transaction may still put the key.
    pub(super) fn is_unsure(&self) -> bool {
        let known = self.known();
        known.asked || known.unsure
    }

    /// Whether the store has nothing of this claim, as far as is known.
    pub(super) fn is_new(&self) -> bool {
        let known = self.known();
        known.revision.is_none() && !known.asked && !known.unsure
    }

    /// Whether this key of the store is ours. A kept key has our name and another lease.
    pub(super) fn is_mine(&self, key: &KeyValue) -> bool {
        key.key() == self.key && key.lease() == self.lease.id
    }

    /// The hold of a place that the store has confirmed to be first.
    pub(super) fn granted(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Hold> {
        let (revision, slot) = {
            let mut known = self.known();
            let revision = known.revision.unwrap_or_default();
            if revision <= known.floor {
                return Err(gone_back(revision, known.floor));
            }
            known.held = true;
            (revision, known.slot)
        };
        let token = u64::try_from(revision).unwrap_or_default();
        let hold = Hold::new(claim.clone(), token, self.lease.validity())?.with_session(self.clone());
        Ok(match slot {
            Some(slot) => hold.with_slot(slot),
            None => hold,
        })
    }

    /// The place of our key, by a linearizable read.
    pub(super) async fn look(&self, connection: &Connection, revision: i64) -> Result<Sight, Fault> {
        let own = TxnOp::get(self.key.clone(), Some(GetOptions::new().with_keys_only()));
        let all = [own].into_iter().chain(self.ahead(Some(revision)));
        let answer = connection.txn(Txn::new().and_then(all.collect::<Vec<_>>())).await?;
        let mut parts = Parts::of(&answer);
        let own = parts.first()?.filter(|own| own.create_revision() == revision && self.is_mine(own));
        match own {
            Some(own) => self.sight(own.mod_revision(), &mut parts),
            None => Ok(Sight::Outside),
        }
    }

    /// The reads that tell what is ahead of our key, or of the newest key.
    pub(super) fn ahead(&self, revision: Option<i64>) -> Vec<TxnOp> {
        let up_to_ours = |options: GetOptions| {
            let options = options.with_keys_only();
            if let Some(revision) = revision { options.with_max_create_revision(revision) } else { options }
        };
        // Ours may be the newest.
        let newest = |options| up_to_ours(options).with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2);
        match self.mode {
            Mode::Exclusive | Mode::Write => vec![self.line.all().get(newest)],
            Mode::Read => vec![self.line.of(Mode::Write).get(newest)],
            Mode::Permits(most) => {
                // The younger ones too: they may have marked slots already.
                let oldest =
                    |options: GetOptions| options.with_keys_only().with_sort(SortTarget::Create, SortOrder::Ascend);
                vec![self.line.of(self.mode).get(oldest), self.line.slots(most.get()).get(|options| options)]
            }
        }
    }

    /// What the reads of [`ahead`](Self::ahead) have told. The key was last changed at `changed`.
    pub(super) fn sight(&self, changed: i64, parts: &mut Parts) -> Result<Sight, Fault> {
        let seen = parts.revision;
        let until = match self.mode {
            Mode::Permits(most) => {
                let (places, marks) = (parts.next()?, parts.next()?);
                let before = places.kvs().iter().take_while(|key| key.key() != self.key).count();
                let room = usize::try_from(most.get()).unwrap_or(usize::MAX);
                if before < room {
                    return Ok(slots::find(self, changed, places.kvs(), before, marks.kvs()));
                }
                Until::Fewer { places: self.line.of(self.mode), by: before - room + 1 }
            }
            _ => {
                let newest = parts.next()?;
                let Some(ahead) = newest.kvs().iter().find(|key| key.key() != self.key) else {
                    return Ok(Sight::First);
                };
                no_stranger(ahead)?;
                Until::Gone(ahead.key().to_vec())
            }
        };
        Ok(Sight::Behind(Ahead { until, seen }))
    }
}

/// The answers to the parts of a transaction, in their order.
pub(super) struct Parts {
    parts: std::vec::IntoIter<TxnOpResponse>,
    /// The store's revision.
    pub(super) revision: i64,
}

impl Parts {
    pub(super) fn of(answer: &TxnResponse) -> Self {
        let revision = answer.header().map_or(0, |header| header.revision());
        Self { parts: answer.op_responses().into_iter(), revision }
    }

    /// The keys that the next part has found.
    pub(super) fn next(&mut self) -> Result<GetResponse, Fault> {
        // Only reads have an answer that says anything.
        let found = self.parts.find_map(|part| if let TxnOpResponse::Get(found) = part { Some(found) } else { None });
        found.ok_or_else(|| nonsense("a part is missing from the answer to a transaction"))
    }

    /// The first key that the next part has found.
    pub(super) fn first(&mut self) -> Result<Option<KeyValue>, Fault> {
        Ok(self.next()?.take_kvs().into_iter().next())
    }
}

/// A key without a lease is no place of a waiter or a holder: waiting for it could last for ever.
pub(super) fn no_stranger(key: &KeyValue) -> Result<(), Fault> {
    if key.lease() == 0 {
        let text = "the lock's name in etcd has a foreign key without a lease, which would never end; delete that key"
            .to_owned();
        return Err(Fault::Refused(ErrorKind::KeyConflict, text));
    }
    Ok(())
}

/// A resource that compares tokens would refuse this holder, or accept an older one beside it.
fn gone_back(revision: i64, seen: i64) -> Error {
    let text = format!(
        "etcd has forgotten revisions: it gave the fencing token {revision} after {seen} was seen; if a backup was \
         restored, restore it again with `--bump-revision`"
    );
    Error::new(ErrorKind::FenceRegression, text)
}

fn nonsense(text: &str) -> Fault {
    Fault::Refused(ErrorKind::Protocol, text.to_owned())
}
