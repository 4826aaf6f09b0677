//! etcd: a line of keys on leases, agreed on by a majority.
//!
//! A lock is a range of keys, one for each contender, and the oldest holds it; its create revision is the fencing
//! token. The queue is our own: the server's lock service hands over every 50 to 100 ms only.
//!
//! | | |
//! | --- | --- |
//! | dead holder | freed at the ttl, up to 2 s later; after a change of the leader up to one more ttl |
//! | tokens | rise for ever, unless the cluster is restored from an old backup (then use its `--bump-revision`) |
//! | order | first come, first served, by the revision at which a waiter came |
//! | ttl | whole seconds, from the server's shortest (2 s by default), which is measured at opening |
//!
//! Holds of one process and ttl share a lease, so the store frees them all together or not at all.

// A library of locks neither panics nor prints.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod connection;
mod fault;
mod inspect;
mod lease;
mod line;
mod members;
mod renewal;
mod rights;
mod wake;

/// The client crate, for programs that talk to the same cluster; see `docs/adr/0007-etcd-needs-protoc.md`.
pub use ::etcd_client as client;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_contract::{
    Address, Attempt, Backend, Claim, Clock, Durability, Error, ErrorKind, Fencing, Health, Hold, Identity, Inspect,
    LockKey, LockState, Opener, Owner, Profile, Queue, Released, Result, Standing, TtlRange, Wake, WakeStyle,
};
use futures::future::BoxFuture;

use self::connection::{Connection, Connections};
use self::fault::Fault;
use self::lease::Leases;
use self::line::{Line, Place, Sight};
use self::members::{FORM, Members};

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&FORM, |address, clock| Box::pin(open(address, clock)));

async fn open(address: Address, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(Etcd::open_at(&address, clock).await?))
}

/// Locks in etcd.
pub struct Etcd {
    connections: Arc<Connections>,
    leases: Arc<Leases>,
    /// What every claim may have left in the store.
    places: Mutex<HashMap<Owner, Arc<Place>>>,
    profile: Profile,
}

impl Etcd {
    /// Opens `etcd://[user:password@]host:port[,host:port…]`, in clear text.
    ///
    /// # Errors
    /// A URL that cannot be read, which is never echoed; no member that answers within five seconds; an account that is refused or lacks rights.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        // The timeouts here are ended by our thread.
        dlock_contract::engine::background()?;
        let connections = Arc::new(Connections::new(Members::of(address)?, clock));
        let connection = connections.get().await?;
        let end = clock.now().after(Duration::from_secs(5));
        let probe = clock.timeout_at(end, rights::probe(&connection));
        let shortest = probe.await.ok_or_else(|| Error::outage("etcd did not grant a lease in time"))??;
        let profile = profile(shortest);
        Ok(Self { connections, leases: Arc::new(Leases::new(clock)), places: Mutex::default(), profile })
    }

    async fn attempt(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        let connection = self.connections.get().await.map_err(Error::never_sent)?;
        let wait = queue != Queue::Leave;
        // A lease may turn out to be over just when it is used. The next one is new.
        for _ in 0..2 {
            let place = self.place(&connection, claim).await?;
            match self.ask(&connection, claim, &place, wait).await {
                Ok(sight) => return self.answer(connection, claim, &place, wait, sight).await,
                Err(Fault::LeaseGone) => {
                    self.leases.bury(&place.lease);
                    self.forget(&place, claim.owner);
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(Fault::LeaseGone.into())
    }

    /// The claim's place, on a lease that lives.
    async fn place(&self, connection: &Connection, claim: &Claim) -> Result<Arc<Place>, Fault> {
        let standing = self.places().get(&claim.owner).cloned();
        if let Some(place) = standing {
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
        let lease = if claim.renewed {
            self.leases.shared(connection, claim.ttl).await?
        } else {
            self.leases.own(connection, claim.ttl).await?
        };
        let place = Arc::new(Place::new(claim, lease));
        self.places().insert(claim.owner, place.clone());
        Ok(place)
    }

    async fn ask(&self, connection: &Connection, claim: &Claim, place: &Place, wait: bool) -> Result<Sight, Fault> {
        let revision = place.known().revision;
        if let Some(revision) = revision {
            match place.look(connection, revision).await? {
                // Somebody deleted our key, or it is another one: to the end of the line.
                Sight::Outside => place.known().revision = None,
                sight => return Ok(sight),
            }
        }
        place.enter(connection, claim, wait).await
    }

    async fn answer(
        &self,
        connection: Connection,
        claim: &Arc<Claim>,
        place: &Arc<Place>,
        wait: bool,
        sight: Sight,
    ) -> Result<Attempt> {
        let revision = place.known().revision.unwrap_or_default();
        match sight {
            Sight::First => {
                place.known().held = true;
                let token = u64::try_from(revision).unwrap_or_default();
                let hold = Hold::new(claim.clone(), token, place.lease.validity())?;
                Ok(Attempt::Acquired(hold.with_session(place.clone())))
            }
            Sight::Behind(ahead) if wait => {
                Ok(Attempt::Contended(wake::wake(connection, place.clone(), revision, ahead)))
            }
            Sight::Behind(_) => {
                place.leave(&connection).await?;
                self.forget(place, claim.owner);
                Ok(Attempt::Contended(Wake::poll()))
            }
            refused @ (Sight::Outside | Sight::Refused(_)) => {
                if !place.lease.shared {
                    self.give_up(claim.owner).await?;
                } else if !place.is_asked_again() {
                    self.forget(place, claim.owner);
                }
                let note = if let Sight::Refused(note) = refused { Some(note) } else { None };
                Ok(Attempt::Contended(Wake::poll().held_by(note)))
            }
        }
    }

    async fn give_back(&self, hold: &Hold) -> Result<Released> {
        let (place, revision) = held(hold)?;
        let connection = self.connections.get().await?;
        let released = place.release(&connection, revision).await?;
        self.forget(place, hold.claim.owner);
        if !place.lease.shared {
            // It holds nothing any more, and would end by itself.
            let _ = connection.revoke(place.lease.id).await;
        }
        Ok(released)
    }

    async fn give_up(&self, owner: Owner) -> Result<()> {
        let standing = self.places().get(&owner).cloned();
        let Some(place) = standing else { return Ok(()) };
        let connection = self.connections.get().await?;
        if place.lease.shared {
            place.leave(&connection).await?;
        } else {
            // Nothing can be put on it afterwards, whatever is still under way.
            match connection.revoke(place.lease.id).await {
                Ok(()) | Err(Fault::LeaseGone) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        self.forget(&place, owner);
        Ok(())
    }

    fn forget(&self, place: &Place, owner: Owner) {
        let mut places = self.places();
        if places.get(&owner).is_some_and(|present| std::ptr::eq(Arc::as_ptr(present), place)) {
            places.remove(&owner);
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place and the create revision of a hold of ours.
fn held(hold: &Hold) -> Result<(&Place, i64)> {
    let foreign = || Error::new(ErrorKind::Internal, "a hold of another backend was given to etcd");
    let place = hold.session::<Place>().ok_or_else(foreign)?;
    let revision = hold.token.and_then(|token| i64::try_from(token.get()).ok()).ok_or_else(foreign)?;
    Ok((place, revision))
}

fn profile(shortest: Duration) -> Profile {
    let ttl = TtlRange::new(shortest, Duration::from_secs(9_000_000_000)).in_steps_of(Duration::from_secs(1));
    Profile::new("etcd", ttl).with(|etcd| {
        // Others on the same lease keep it alive.
        etcd.expires_alone = false;
        etcd.fencing = Fencing::Monotonic;
        etcd.fair = true;
        etcd.wake = WakeStyle::Hint;
        // The server looks for ended leases every half second, and revokes at most a thousand per second.
        etcd.takeover_delay = Duration::from_secs(2);
        etcd.durability = Durability::Consensus;
    })
}

impl Backend for Etcd {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn identify(&self, key: &LockKey) -> Result<Identity> {
        Ok(Identity::of(key).named(Line::of(key).name()))
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, queue: Queue) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.attempt(claim, queue))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(self.renew_all(holds))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(self.give_back(hold))
    }

    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.give_up(claim.owner))
    }

    fn look<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
        Box::pin(async move { Ok(inspect::look(&self.connections.get().await?, key).await?) })
    }

    /// A read that a majority has to agree on.
    fn ready(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(async move {
            rights::read(&self.connections.get().await?, rights::LOCKS).await?;
            Ok(Health::new())
        })
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let places = std::mem::take(&mut *self.places());
            let own = places.into_values().map(|place| place.lease.clone()).filter(|lease| !lease.shared);
            let leases: Vec<_> = own.chain(self.leases.drain()).collect();
            if let Ok(connection) = self.connections.get().await {
                for lease in leases {
                    self.leases.bury(&lease);
                    let _ = connection.revoke(lease.id).await;
                }
            }
            self.connections.clear();
        })
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("hosts", &self.connections.hosts()).finish_non_exhaustive()
    }
}
