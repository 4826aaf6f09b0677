//! The store: how it is opened, and one attempt for one lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{
    Address, Attempt, Claim, Clock, Durability, Error, ErrorKind, Fencing, Hold, Mode, Owner, Profile, Queue, Released,
    Result, TtlRange, Wake, WakeStyle,
};

use super::connection::{Connection, Connections};
use super::fault::Fault;
use super::lease::{Lease, Leases};
use super::members::{FORM, Members};
use super::names::Layout;
use super::place::{Place, Sight};
use super::{rights, wake};

/// Locks in etcd.
pub struct Etcd {
    pub(super) connections: Arc<Connections>,
    pub(super) leases: Arc<Leases>,
    pub(super) layout: Layout,
    /// The traces that each claim may have left in the store.
    places: Mutex<HashMap<Owner, Arc<Place>>>,
    pub(super) profile: Profile,
}

impl Etcd {
    /// Opens `etcd://[user:password@]host:port[,host:port…][?options]`.
    ///
    /// # Errors
    /// A URL that cannot be read, which is never echoed; no member that answers within five seconds; an account that is refused or lacks rights.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    pub(super) async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        // The timeouts here are ended by our thread.
        dlock_contract::engine::background()?;
        let layout = match address.option("keys") {
            Some(_) => Layout::Literal,
            None => Layout::Own,
        };
        let connections = Arc::new(Connections::new(Members::of(address)?, clock));
        let connection = connections.get().await?;
        let end = clock.now().after(Duration::from_secs(5));
        let probe = clock.timeout_at(end, rights::probe(&connection, layout));
        let shortest = probe.await.ok_or_else(|| Error::outage("etcd did not grant a lease in time"))??;
        let profile = profile(shortest, layout);
        let leases = Arc::new(Leases::new(clock, connections.seen.clone()));
        Ok(Self { connections, leases, layout, places: Mutex::default(), profile })
    }

    pub(super) async fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let connection = self.connections.get().await.map_err(Error::never_sent)?;
        let wait = queue != Queue::Leave;
        // A lease may turn out to be over just when it is used. The next one is new.
        for _ in 0..2 {
            let place = self.place(&connection, claim).await?;
            match self.ask(&connection, &place, wait).await {
                Ok(sight) => return self.answer(connection, claim, &place, wait, sight).await,
                Err(Fault::LeaseGone) => {
                    self.leases.bury(&place.lease);
                    self.forget(&place, claim.owner);
                }
                Err(fault) => {
                    let error = Error::from(fault);
                    if error.kind() == &ErrorKind::KeyConflict {
                        // It leaves nothing behind, neither a place nor a lease of its own. If this fails, the core
                        // abandons.
                        let _ = self.give_up(claim.owner).await;
                    }
                    return Err(error);
                }
            }
        }
        Err(Fault::LeaseGone.into())
    }

    /// The claim's place, on a lease that lives.
    pub(super) async fn place(&self, connection: &Connection, claim: &Claim) -> Result<Arc<Place>> {
        let standing = self.places().get(&claim.owner).cloned();
        if let Some(place) = standing {
            if place.known().leaving {
                // The lease first: from the end of the former place until the new one is there, nothing may be awaited. If
                // the caller were dropped there, nobody would remember the former place.
                let lease = self.lease(connection, claim).await?;
                self.give_up(claim.owner).await?;
                // An end of it may be under way, and must not meet the next grant of this claim.
                return self.anew(claim, lease, Some(place));
            }
            // What is granted now must run from now: always for a lease that nobody will renew, and where the store
            // may have known this claim as the holder for some time.
            let lives = if place.lease.shared && !place.is_asked_again() {
                self.leases.freshen(connection, &place.lease).await?
            } else {
                self.leases.keep(connection, &place.lease).await?
            };
            if lives {
                return Ok(place);
            }
            self.forget(&place, claim.owner);
        }
        let lease = self.lease(connection, claim).await?;
        self.anew(claim, lease, None)
    }

    async fn lease(&self, connection: &Connection, claim: &Claim) -> Result<Arc<Lease>, Fault> {
        if claim.renewed {
            self.leases.shared(connection, claim.ttl).await
        } else {
            self.leases.own(connection, claim.ttl).await
        }
    }

    fn anew(&self, claim: &Claim, lease: Arc<Lease>, former: Option<Arc<Place>>) -> Result<Arc<Place>> {
        let line = self.layout.line(&claim.key)?;
        let place = Arc::new(Place::new(claim, line, lease, self.connections.clock.now(), former));
        self.places().insert(claim.owner, place.clone());
        Ok(place)
    }

    async fn ask(&self, connection: &Connection, place: &Place, wait: bool) -> Result<Sight, Fault> {
        let revision = place.known().revision;
        if let Some(revision) = revision {
            let sight = place.look(connection, revision).await?;
            match place.settle(connection, sight).await? {
                // Somebody deleted our key, or it is another one: to the end of the line.
                Sight::Outside => place.known().revision = None,
                sight => return Ok(sight),
            }
        }
        let sight = place.enter(connection, wait).await?;
        place.settle(connection, sight).await
    }

    pub(super) async fn answer(
        &self,
        connection: Connection,
        claim: &Arc<Claim>,
        place: &Arc<Place>,
        wait: bool,
        sight: Sight,
    ) -> Result<Attempt> {
        match sight {
            Sight::First => Ok(Attempt::Acquired(place.granted(claim)?)),
            Sight::Behind(ahead) if wait => {
                Ok(Attempt::Contended(wake::wake(connection, claim.clone(), place.clone(), ahead)))
            }
            Sight::Behind(_) | Sight::Room(_) => {
                place.leave(&connection).await?;
                self.forget(place, claim.owner);
                Ok(Attempt::Contended(Wake::poll()))
            }
            refused @ (Sight::Outside | Sight::Refused(_)) => {
                if wait {
                    self.step_back(claim, place).await?;
                } else {
                    // An earlier attempt may still arrive.
                    self.give_up(claim.owner).await?;
                }
                let note = if let Sight::Refused(note) = refused { Some(note) } else { None };
                Ok(Attempt::Contended(Wake::poll().held_by(note)))
            }
        }
    }

    /// The store has said that nothing of the claim is there.
    pub(super) async fn step_back(&self, claim: &Claim, place: &Place) -> Result<()> {
        if !place.lease.shared {
            self.give_up(claim.owner).await?;
        } else if !place.is_asked_again() {
            self.forget(place, claim.owner);
        }
        Ok(())
    }

    pub(super) async fn give_back(&self, hold: &Hold) -> Result<Released> {
        let (place, revision) = held(hold)?;
        // The hold has the place. Were the release given up, nobody would ever take it out here.
        self.forget(place, hold.claim.owner);
        let connection = self.connections.get().await?;
        let released = place.release(&connection, revision).await?;
        self.end(&connection, place).await;
        Ok(released)
    }

    /// The place has left the queue.
    pub(super) async fn end(&self, connection: &Connection, place: &Place) {
        if !place.lease.shared {
            // It holds nothing any more, and would end by itself.
            let _ = connection.revoke(place.lease.id).await;
        }
    }

    pub(super) async fn give_up(&self, owner: Owner) -> Result<()> {
        let standing = self.places().get(&owner).cloned();
        let Some(place) = standing else { return Ok(()) };
        let connection = self.connections.get().await?;
        if place.lease.shared {
            place.leave(&connection).await?;
        } else {
            // Nothing can be put on it afterwards, whatever is still under way.
            place.known().leaving = true;
            match connection.revoke(place.lease.id).await {
                Ok(()) | Err(Fault::LeaseGone) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        self.forget(&place, owner);
        Ok(())
    }

    pub(super) fn forget(&self, place: &Place, owner: Owner) {
        let mut places = self.places();
        if places.get(&owner).is_some_and(|present| std::ptr::eq(Arc::as_ptr(present), place)) {
            places.remove(&owner);
        }
    }

    pub(super) fn places(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place and the create revision of a hold of ours.
pub(super) fn held(hold: &Hold) -> Result<(&Place, i64)> {
    let foreign = || Error::new(ErrorKind::Internal, "a hold of another backend was given to etcd");
    let place = hold.session::<Place>().ok_or_else(foreign)?;
    let revision = hold.token.and_then(|token| i64::try_from(token.get()).ok()).ok_or_else(foreign)?;
    Ok((place, revision))
}

fn profile(shortest: Duration, layout: Layout) -> Profile {
    let ttl = TtlRange::new(shortest, Duration::from_secs(9_000_000_000)).in_steps_of(Duration::from_secs(1));
    Profile::new("etcd", ttl).with(|etcd| {
        // Others on the same lease keep it alive.
        etcd.expires_alone = false;
        etcd.fencing = Fencing::Monotonic;
        etcd.fair = true;
        // The other tools know exclusive locks alone.
        etcd.read_write = layout == Layout::Own;
        etcd.permits = layout == Layout::Own;
        etcd.any_key = layout == Layout::Own;
        etcd.wake = WakeStyle::Grant;
        // The server looks for ended leases every half second, and revokes at most a thousand per second.
        etcd.takeover_delay = Duration::from_secs(2);
        etcd.durability = Durability::Consensus;
    })
}

/// Whether a claim can be one of several that are taken in one step.
pub(super) fn is_plain(claim: &Claim) -> bool {
    claim.mode == Mode::Exclusive && !claim.fair
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("hosts", &self.connections.hosts()).finish_non_exhaustive()
    }
}
