//! One attempt to get a lock.

use std::sync::Arc;

use dlock_contract::{Attempt, Claim, Error, ErrorKind, Hold, Mode, Note, Queue, Result, Validity, Wake};

use crate::api::kv::{self, Entry};
use crate::api::txn::{self, Failure, Op, Outcome};
use crate::lock::locks::Locks;
use crate::lock::name::Name;
use crate::lock::permits::Permits;
use crate::lock::place::{Grant, Lease, Place, Turn};
use crate::lock::value::{LOCK, Stamp};
use crate::lock::wait::Awaited;

/// Others may be faster so many times between the look at the lock and the transaction.
const TRIES: u32 = 4;

/// The result of one look at the lock and of a transaction after it.
pub(crate) enum Step {
    /// Ours: its token and its slot.
    Won { token: u64, slot: Option<u32> },
    /// Somebody else's.
    Held { awaited: Awaited, index: u64, by: Option<Note> },
    /// Nobody's, and nobody gets it yet: its last holder's session was ended.
    Delayed,
    /// Something has changed meanwhile.
    Again,
}

impl Locks {
    pub(crate) async fn attempt(
        self: Arc<Self>,
        claim: Arc<Claim>,
        queue: Queue,
        place: Arc<Place>,
        turn: Turn,
    ) -> Result<Attempt> {
        let mut lease = turn.await;
        for _ in 0..TRIES {
            let step = self.step(&claim, &place, &mut lease).await.map_err(|error| {
                // Nothing of the claim is in the store, and an error that was never sent is followed by no abandon.
                if lease.is_none() {
                    self.forget_empty(claim.owner, &place);
                    return error;
                }
                // Its session is there, whatever became of the last request.
                if error.may_have_left() { error } else { Error::outage(error.message().to_owned()).because(error) }
            })?;
            match step {
                Step::Won { token, slot } => return self.won(claim, &place, lease.as_ref(), token, slot),
                Step::Held { awaited, index, by } if queue != Queue::Leave => {
                    return Ok(Attempt::Contended(self.wake(awaited, index, by)));
                }
                Step::Held { by, .. } => {
                    self.leave(&claim, &place, &mut lease).await?;
                    return Ok(Attempt::Contended(Wake::poll().held_by(by)));
                }
                Step::Delayed => {
                    if queue == Queue::Leave {
                        self.leave(&claim, &place, &mut lease).await?;
                    }
                    return Ok(Attempt::Contended(self.ask_again_soon()));
                }
                Step::Again => {}
            }
        }
        if queue == Queue::Leave {
            self.leave(&claim, &place, &mut lease).await?;
        }
        Ok(Attempt::Contended(self.ask_again_soon()))
    }

    async fn step(&self, claim: &Claim, place: &Place, lease: &mut Option<Lease>) -> Result<Step> {
        match claim.mode {
            Mode::Exclusive => self.lock_step(claim, &place.name, lease).await,
            Mode::Permits(limit) => self.permit_step(claim, limit.get(), &place.name, lease).await,
            Mode::Read | Mode::Write => {
                Err(Error::new(ErrorKind::Internal, "readers and writers are not locked in Consul"))
            }
        }
    }

    async fn lock_step(&self, claim: &Claim, name: &Name, lease: &mut Option<Lease>) -> Result<Step> {
        let seen = kv::read(&self.http, &name.lock, None).await.map_err(|error| unsent(error, lease.as_ref()))?;
        if let Some(entry) = &seen.found {
            check_flags(entry, LOCK)?;
            let ours = lease.as_ref().is_some_and(|lease| entry.is_held_by(&lease.session));
            if entry.session.is_some() && !ours {
                let by = Stamp::read(&entry.text()).map(|stamp| stamp.note);
                let awaited = Awaited::Lock(name.lock.clone());
                return Ok(Step::Held { awaited, index: seen.index, by });
            }
        }
        match self.take(claim, name, seen.found.as_ref(), Counter::None, lease).await? {
            // Permits are, or were, given for this key, or another tool's lock has the name of their count.
            Taken::Counted => {
                let permits = Permits::of(name, &kv::read_all(&self.http, &name.below, None).await?.found);
                permits.check_none(&claim.key)?;
                let counter = if permits.is_foreign() { Counter::Foreign } else { Counter::Unused(permits.index) };
                Ok(self.take(claim, name, seen.found.as_ref(), counter, lease).await?.into())
            }
            taken => Ok(taken.into()),
        }
    }

    /// Takes the lock, if nothing has changed since it was seen.
    async fn take(
        &self,
        claim: &Claim,
        name: &Name,
        seen: Option<&Entry>,
        counter: Counter,
        lease: &mut Option<Lease>,
    ) -> Result<Taken> {
        let index = seen.map_or(0, |entry| entry.modify_index);
        let is_ours = seen.is_some_and(|entry| entry.session.is_some());
        let Some(session) = self.session(claim, lease, is_ours).await? else { return Ok(Taken::Again) };
        let stamp = Stamp::of(claim, None).to_text();
        let mut ops = vec![Op::unchanged(&name.lock, index), Op::lock(&name.lock, &session, LOCK, &stamp)];
        match counter {
            Counter::None => ops.push(Op::unchanged(&name.semaphore, 0)),
            // Other tools keep a count that nobody uses.
            Counter::Unused(index) if self.http.settings().literal => ops.push(Op::unchanged(&name.semaphore, index)),
            Counter::Unused(index) => ops.push(Op::delete_unchanged(&name.semaphore, index)),
            Counter::Foreign => {}
        }
        match txn::run(&self.http, &ops).await? {
            Outcome::Done(entries) => {
                // The check before it tells the key as it was.
                let entry = entries.into_iter().rfind(|entry| entry.key == name.lock);
                let untold = || Error::new(ErrorKind::Protocol, "a transaction that took a lock does not tell its key");
                Ok(Taken::Won(entry.ok_or_else(untold)?.modify_index))
            }
            Outcome::Refused(failures) => {
                if failures.iter().any(Failure::is_dead_session) {
                    *lease = None;
                }
                Ok(match &failures[..] {
                    failures if failures.iter().any(Failure::is_lock_delay) => Taken::Delayed,
                    [only] if only.op_index == 2 && counter == Counter::None => Taken::Counted,
                    _ => Taken::Again,
                })
            }
        }
    }

    /// The session of a claim, with most of its time left. `None`: the one that it had has ended.
    pub(crate) async fn session(
        &self,
        claim: &Claim,
        lease: &mut Option<Lease>,
        is_held: bool,
    ) -> Result<Option<String>> {
        let Some(present) = lease else {
            return Ok(Some(lease.insert(self.new_session(claim).await?).session.clone()));
        };
        // The store may have known this for some time, so the time runs from now.
        let is_fresh = self.http.clock().now() < present.confirmed.after(claim.ttl / 3);
        if (is_fresh && !is_held) || self.keep(present).await? {
            return Ok(Some(present.session.clone()));
        }
        *lease = None;
        Ok(None)
    }

    fn won(
        &self,
        claim: Arc<Claim>,
        place: &Place,
        lease: Option<&Lease>,
        token: u64,
        slot: Option<u32>,
    ) -> Result<Attempt> {
        let lease = lease.ok_or_else(|| Error::new(ErrorKind::Internal, "a lock was won without a session"))?;
        let validity = Validity::new(lease.confirmed, claim.ttl);
        let (name, session, watch) = (place.name.clone(), lease.session.clone(), self.watch.clone());
        let grant = Grant { name, session, is_permit: slot.is_some(), watch };
        let hold = Hold::new(claim, token, validity)?.with_session(Arc::new(grant));
        Ok(Attempt::Acquired(match slot {
            Some(slot) => hold.with_slot(slot),
            None => hold,
        }))
    }
}

/// The count of permits for a lock's key, as an attempt for the lock expects it.
#[derive(Clone, Copy, PartialEq)]
enum Counter {
    /// There is none.
    None,
    /// Nobody has a permit; it was last changed at this index.
    Unused(u64),
    /// Another tool's lock has its name.
    Foreign,
}

/// The result of a transaction for a lock.
enum Taken {
    Won(u64),
    Delayed,
    /// There is a count of permits for this key.
    Counted,
    Again,
}

impl From<Taken> for Step {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Won(token) => Self::Won { token, slot: None },
            Taken::Delayed => Self::Delayed,
            Taken::Counted | Taken::Again => Self::Again,
        }
    }
}

/// The failure of a look. A look leaves nothing, and without a session nothing was left before.
pub(crate) fn unsent(error: Error, lease: Option<&Lease>) -> Error {
    if lease.is_none() { error.never_sent() } else { error }
}

/// Whether the key is one of locks, or of permits, and no other program's.
pub(crate) fn check_flags(entry: &Entry, flags: u64) -> Result<()> {
    if entry.flags == flags {
        return Ok(());
    }
    let text = "the Consul key holds something that is no lock of this kind (its flags differ); rename the lock or delete the key";
    Err(Error::new(ErrorKind::KeyConflict, text).with_key(&entry.key))
}
