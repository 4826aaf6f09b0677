//! The store: opening it, and one attempt to get one lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{
    Attempt, Claim, Durability, Error, ErrorKind, Fencing, Hold, Mode, Owner, Profile, Queue, Released, Result,
    TtlRange, Wake, WakeStyle,
};
use dlock_store::{Address, Clock};

use super::connection::{Connection, Connections};
use super::fault::{FIRST_CONTACT, Fault};
use super::lease::{Lease, Leases};
use super::members::{FORM, Members};
use super::names::Layout;
use super::place::Place;
use super::position::Position;
use super::{forms, rights, wake};

/// Locks in etcd.
pub struct Etcd {
    pub(super) connections: Arc<Connections>,
    pub(super) leases: Arc<Leases>,
    pub(super) layout: Layout,
    /// The place of each claim that may have a key in the store.
    places: Mutex<HashMap<Owner, Arc<Place>>>,
    pub(super) profile: Profile,
}

impl Etcd {
    /// Opens `etcd://[user:password@]host:port[,host:port…][?options]`.
    ///
    /// # Errors
    /// A URL that cannot be read (the error never repeats it); no member that answers within five seconds; an account that
    /// is refused or lacks rights.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    pub(super) async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        Self::connect(address, clock).await.map_err(|error| error.advise(&FIRST_CONTACT))
    }

    async fn connect(address: &Address, clock: &Clock) -> Result<Self> {
        let (named, background) = (address.clone(), dlock_store::background()?);
        // This reads files, and a disk may hang. A store that is opened at its first use is opened on our thread.
        let members = background.run_blocking(move || Members::of(&named)).await??;
        let layout = match address.option("keys") {
            Some(_) => Layout::Literal,
            None => Layout::Own,
        };
        let connections = Arc::new(Connections::new(members, clock));
        let connection = connections.get().await?;
        connections.check_clusters().await?;
        let end = clock.now().after(Duration::from_secs(5));
        let probe = clock.timeout_at(end, async {
            let shortest = rights::probe(&connection, layout).await?;
            forms::note(&connection, layout).await.map(|_| shortest)
        });
        let shortest = probe.await.ok_or_else(|| Error::outage("etcd did not grant a lease in time"))??;
        let profile = profile(shortest, layout);
        let leases = Arc::new(Leases::new(&connections));
        Ok(Self { connections, leases, layout, places: Mutex::default(), profile })
    }

    pub(super) async fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let connection = self.connections.get().await.map_err(Error::never_sent)?;
        let wait = queue != Queue::Leave;
        // The lease may end before the attempt uses it. The second try has a new lease.
        for _ in 0..2 {
            let place = self.place(&connection, claim).await?;
            match self.look_or_enter(&connection, &place, wait).await {
                Ok(position) => return self.to_attempt(connection, claim, &place, wait, position).await,
                Err(Fault::LeaseGone) => {
                    self.leases.mark_ended(&place.lease);
                    self.forget(&place, claim.owner);
                }
                Err(fault) => {
                    let error = Error::from(fault);
                    if error.kind() == &ErrorKind::KeyConflict {
                        // A refused claim must leave neither a key nor a lease. If this fails, the engine abandons the
                        // claim.
                        let _ = self.abandon_claim(claim.owner).await;
                    }
                    return Err(error);
                }
            }
        }
        Err(Fault::LeaseGone.into())
    }

    /// The claim's place, on a lease that is alive.
    pub(super) async fn place(&self, connection: &Connection, claim: &Claim) -> Result<Arc<Place>> {
        let existing = self.places().get(&claim.owner).cloned();
        if let Some(place) = existing {
            if place.state().leaving {
                // Get the lease first. Nothing may be awaited between the end of the previous place and the new one. If
                // the caller were dropped there, nobody would remember the previous place.
                let lease = self.lease(connection, claim).await?;
                self.abandon_claim(claim.owner).await?;
                // A request that ends the previous place may arrive late. It must not end the next grant of this claim,
                // so the new place has another key.
                return self.new_place(claim, lease, Some(place));
            }
            // The grant must be valid from now on. So a lease that nobody renews is kept alive now. So is a shared
            // lease, if the store may have known this claim as the holder for some time.
            let lives = if place.lease.shared && !place.was_asked_before() {
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
        self.new_place(claim, lease, None)
    }

    async fn lease(&self, connection: &Connection, claim: &Claim) -> Result<Arc<Lease>, Fault> {
        if claim.renewed {
            self.leases.shared(connection, claim.ttl).await
        } else {
            self.leases.own(connection, claim.ttl).await
        }
    }

    fn new_place(&self, claim: &Claim, lease: Arc<Lease>, previous: Option<Arc<Place>>) -> Result<Arc<Place>> {
        let range = self.layout.range(&claim.key)?;
        let place = Arc::new(Place::new(claim, range, lease, self.connections.clock.now(), previous));
        self.places().insert(claim.owner, place.clone());
        Ok(place)
    }

    async fn look_or_enter(&self, connection: &Connection, place: &Place, wait: bool) -> Result<Position, Fault> {
        let revision = place.state().revision;
        if let Some(revision) = revision {
            let position = place.read_position(connection, revision).await?;
            match place.take_slot(connection, position).await? {
                // Our key was deleted, or another claim has one of this name. Enter at the end of the queue.
                Position::Absent => place.state().revision = None,
                position => return Ok(position),
            }
        }
        let position = place.enter(connection, wait).await?;
        place.take_slot(connection, position).await
    }

    pub(super) async fn to_attempt(
        &self,
        connection: Connection,
        claim: &Arc<Claim>,
        place: &Arc<Place>,
        wait: bool,
        position: Position,
    ) -> Result<Attempt> {
        match position {
            Position::First => Ok(Attempt::Acquired(place.granted(claim)?)),
            Position::Behind(ahead) if wait => {
                Ok(Attempt::Contended(wake::wake(connection, claim.clone(), place.clone(), ahead)))
            }
            Position::Behind(_) | Position::SlotFree(_) => {
                self.abandon_claim(claim.owner).await?;
                Ok(Attempt::Contended(Wake::poll()))
            }
            refused @ (Position::Absent | Position::Refused(_)) => {
                if wait {
                    self.forget_refused(claim, place).await?;
                } else {
                    // An earlier transaction may still put the key.
                    self.abandon_claim(claim.owner).await?;
                }
                let note = if let Position::Refused(note) = refused { Some(note) } else { None };
                Ok(Attempt::Contended(Wake::poll().held_by(note)))
            }
        }
    }

    /// Forgets a claim that has no key, as the store has answered.
    pub(super) async fn forget_refused(&self, claim: &Claim, place: &Place) -> Result<()> {
        if !place.lease.shared {
            self.abandon_claim(claim.owner).await?;
        } else if !place.was_asked_before() {
            self.forget(place, claim.owner);
        }
        Ok(())
    }

    pub(super) async fn release_hold(&self, hold: &Hold) -> Result<Released> {
        let (place, revision) = held(hold)?;
        // The hold has a reference to its place. If the caller is dropped during this release, nobody would remove the
        // place from the map later.
        self.forget(place, hold.claim.owner);
        let connection = self.connections.get().await?;
        let released = place.release(&connection, revision).await?;
        self.revoke_own_lease(&connection, place).await;
        Ok(released)
    }

    /// Revokes the lease of a place that has left the queue, unless others share it.
    pub(super) async fn revoke_own_lease(&self, connection: &Connection, place: &Place) {
        if !place.lease.shared {
            // No key is on it. If this fails, the lease ends by itself.
            let _ = connection.revoke(place.lease.id).await;
        }
    }

    pub(super) async fn abandon_claim(&self, owner: Owner) -> Result<()> {
        let existing = self.places().get(&owner).cloned();
        let Some(place) = existing else { return Ok(()) };
        let connection = self.connections.get().await?;
        if place.lease.shared {
            place.leave(&connection).await?;
        } else {
            // A transaction that arrives later cannot put a key on a revoked lease.
            place.state().leaving = true;
            match connection.revoke(place.lease.id).await {
                Ok(()) | Err(Fault::LeaseGone) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        self.forget(&place, owner);
        Ok(())
    }

    pub(super) fn forget(&self, place: &Place, owner: Owner) {
        if let Entry::Occupied(present) = self.places().entry(owner)
            && std::ptr::eq(Arc::as_ptr(present.get()), place)
        {
            present.remove();
        }
    }

    pub(super) fn places(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place and the create revision of a hold of this store.
pub(super) fn held(hold: &Hold) -> Result<(&Place, i64)> {
    let foreign = || Error::new(ErrorKind::Internal, "a hold of another backend was given to etcd");
    let place = hold.session::<Place>().ok_or_else(foreign)?;
    let revision = hold.token.and_then(|token| i64::try_from(token.get()).ok()).ok_or_else(foreign)?;
    Ok((place, revision))
}

fn profile(shortest: Duration, layout: Layout) -> Profile {
    let ttl = TtlRange::new(shortest, Duration::from_secs(9_000_000_000)).in_steps_of(Duration::from_secs(1));
    Profile::new("etcd", ttl).with(|etcd| {
        // Other holds on the same lease keep it alive.
        etcd.expires_alone = false;
        etcd.fencing = Fencing::Monotonic;
        etcd.fair = true;
        // Foreign clients know exclusive locks only.
        etcd.read_write = layout == Layout::Own;
        etcd.permits = layout == Layout::Own;
        etcd.any_key = layout == Layout::Own;
        etcd.wake = WakeStyle::Grant;
        // The server looks for ended leases every 500 ms, and revokes at most a thousand per second.
        etcd.takeover_delay = Duration::from_secs(2);
        etcd.durability = Durability::Consensus;
    })
}

/// Whether a claim can be one of several that one transaction takes.
pub(super) fn can_be_batched(claim: &Claim) -> bool {
    claim.mode == Mode::Exclusive && !claim.fair
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("hosts", &self.connections.hosts()).finish_non_exhaustive()
    }
}
