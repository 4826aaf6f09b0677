//! Locks by `GET_LOCK` of MySQL and MariaDB: a lock belongs to a session and ends with it.
//!
//! Every hold, and every waiter, has a connection of its own; it is shared with nobody while it holds a lock. The
//! server is told to end a session that is silent for the ttl, so a host that vanished does not hold for ever. Waiting
//! is one request: the server grants in its own order and the grant is the answer.
//!
//! Named locks live in the memory of one server, for all of its databases, and in no replica: after a failover nobody
//! holds anything. The fencing tokens are in a table (`dlock_named`, made at the first start), with one row for every
//! key that was ever locked; rows are never deleted, and none need be.

mod address;
mod fault;
mod link;
mod session;
mod table;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use sha2::{Digest, Sha256};

use self::address::Address;
pub(crate) use self::fault::fault;
use self::link::{Answer, Link, PATIENCE};
use self::session::Session;
use crate::backend::{Attempt, Backend, Claim, Hold, Released, Signal, Stand, Standing, Validity, Wake};
use crate::capabilities::{Capabilities, Durability, Expiry, Fencing, TtlRange, WakeStyle};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::key::{LockKey, MAX_KEY_BYTES};
use crate::note::Note;
use crate::owner::Owner;
use crate::per_runtime::PerRuntime;

/// Opens `mysql://user:password@host:port/database`.
pub(crate) async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(GetLock::open(url, clock).await?))
}

/// How many clean connections are kept for the next holds.
const PARKED: usize = 16;

/// Locks by `GET_LOCK`. See the [module](self).
#[derive(Debug)]
pub struct GetLock {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

/// What waiters need too, which outlive the borrow of the backend.
#[derive(Debug)]
struct Shared {
    address: Address,
    clock: Clock,
    /// Clean connections, by the runtime that drives them.
    parked: PerRuntime<Arc<Mutex<Vec<Link>>>>,
    /// Which session holds for whom: an owner that asks again is told so, and one that gives up is found.
    holding: Mutex<HashMap<Owner, Weak<Session>>>,
}

impl GetLock {
    /// Opens `mysql://user:password@host:port/database` or `mariadb://…`. Special characters in the account are
    /// percent-encoded. With `?socket=path` the connection goes over a Unix socket.
    ///
    /// # Errors
    /// Where the server cannot be reached within five seconds, refuses the account, is a replica or one of several
    /// writable nodes, or where the table is missing and may not be made.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        // Who sleeps on the clock needs our thread.
        crate::background::background()?;
        let address = Address::parse(url)?;
        let (parked, holding) = (PerRuntime::new(), Mutex::default());
        let shared = Arc::new(Shared { address, clock: clock.clone(), parked, holding });
        shared
            .bounded(async {
                let link = table::prepare(Link::connect(&shared.address).await?).await?;
                // It stays with the server's default of silence, which no hold has: not kept.
                drop(link);
                Ok(())
            })
            .await?;
        Ok(Self { shared, capabilities: capabilities() })
    }
}

impl Shared {
    /// Ends `work` if the server does not answer in time. Its connection closes with it.
    async fn bounded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = self.clock.now().after(PATIENCE);
        let late = || Error::outage(format!("the server did not answer within {PATIENCE:?}"));
        self.clock.timeout_at(deadline, work).await.ok_or_else(late)?
    }

    async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        if let Some(hold) = self.held_already(claim).await? {
            return Ok(Attempt::Acquired(hold));
        }
        let name = name_of(&claim.key);
        let (link, answer) = self.ask(&name, claim.ttl).await?;
        match (answer, stand) {
            (Answer::Granted, _) => Ok(Attempt::Acquired(self.take(link, name, claim).await?)),
            (Answer::Taken, Stand::No) => {
                self.park(link).await;
                Ok(Attempt::Contended(Wake::poll()))
            }
            (Answer::Taken, Stand::Until(deadline)) => {
                let (shared, claim) = (self.clone(), claim.clone());
                Ok(Attempt::Contended(Wake::on(async move {
                    let wait = deadline.since(shared.clock.now());
                    match link.lock(&name, wait).await? {
                        (link, Answer::Granted) => {
                            shared.bounded(shared.take(link, name, &claim)).await.map(Signal::Granted)
                        }
                        (link, Answer::Taken) => {
                            shared.park(link).await;
                            Ok(Signal::Ask)
                        }
                    }
                })))
            }
        }
    }

    /// This owner's lock, if an earlier attempt has won it and its answer was lost.
    async fn held_already(&self, claim: &Arc<Claim>) -> Result<Option<Hold>> {
        let Some(session) = self.session_of(&claim.owner) else { return Ok(None) };
        match session.confirm(claim.ttl, &self.clock).await? {
            Standing::Renewed(validity) => {
                Hold::new(claim.clone(), session.token, validity).map(|hold| Some(hold.with_session(session)))
            }
            Standing::Lost => Ok(None),
        }
    }

    /// Asks for the lock without waiting, over a parked connection if one is left.
    async fn ask(&self, name: &str, ttl: Duration) -> Result<(Link, Answer)> {
        while let Some(link) = self.unpark().await? {
            let asked = match link.end_after(ttl).await {
                Ok(link) => link.lock(name, Duration::ZERO).await,
                Err(error) => Err(error),
            };
            match asked {
                // The server has ended it meanwhile; nothing was taken that outlives it.
                Err(error) if error.is_retryable() => {}
                asked => return asked,
            }
        }
        Link::connect(&self.address).await?.end_after(ttl).await?.lock(name, Duration::ZERO).await
    }

    /// Makes a hold of a lock that the server has granted.
    async fn take(&self, link: Link, name: String, claim: &Arc<Claim>) -> Result<Hold> {
        // From here on the server counts the silence anew: it has the session, and so the lock, when it answers.
        let from = self.clock.now();
        let (link, token) = link.stamp(&name, claim.note.as_str()).await?;
        let session = Arc::new(Session::new(name, token, link));
        let validity = Validity { from, granted: claim.ttl };
        let hold = Hold::new(claim.clone(), token, validity)?.with_session(session.clone());
        let mut holding = self.holding();
        // Those of dropped holds go now and then.
        if holding.len() == holding.capacity() {
            holding.retain(|_, session| session.strong_count() > 0);
        }
        holding.insert(claim.owner, Arc::downgrade(&session));
        Ok(hold)
    }

    /// Frees what this session holds; true if it held it.
    async fn free(&self, owner: &Owner, session: &Session) -> Result<bool> {
        let freed = self.bounded(session.free()).await;
        self.forget(owner, session);
        let Some(link) = freed? else { return Ok(false) };
        self.park(link).await;
        Ok(true)
    }

    /// Unless the owner has another session by now.
    fn forget(&self, owner: &Owner, session: &Session) {
        let mut holding = self.holding();
        if holding.get(owner).and_then(Weak::upgrade).is_some_and(|known| known.id == session.id) {
            holding.remove(owner);
        }
    }

    fn session_of(&self, owner: &Owner) -> Option<Arc<Session>> {
        self.holding().get(owner)?.upgrade()
    }

    fn holding(&self) -> std::sync::MutexGuard<'_, HashMap<Owner, Weak<Session>>> {
        self.holding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn unpark(&self) -> Result<Option<Link>> {
        let parked = self.parked.get(|| async { Ok(Arc::default()) }).await?.value;
        let now = self.clock.now();
        let mut parked = parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|link| link.is_fresh(now));
        Ok(parked.pop())
    }

    /// Keeps a connection that holds nothing.
    async fn park(&self, mut link: Link) {
        link.parked = Some(self.clock.now());
        if let Ok(parked) = self.parked.get(|| async { Ok(Arc::default()) }).await {
            let mut parked = parked.value.lock().unwrap_or_else(PoisonError::into_inner);
            if parked.len() < PARKED {
                parked.push(link);
            }
        }
    }
}

impl Backend for GetLock {
    fn kind(&self) -> &'static str {
        "mysql"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Arc<Claim>, stand: Stand) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.shared.bounded(self.shared.attempt(claim, stand)))
    }

    fn renew<'a>(&'a self, holds: &'a [&'a Hold]) -> BoxFuture<'a, Vec<Result<Standing>>> {
        Box::pin(join_all(holds.iter().map(|hold| async move {
            match hold.session::<Session>() {
                Some(session) => session.confirm(hold.claim.ttl, &self.shared.clock).await,
                None => Ok(Standing::Lost),
            }
        })))
    }

    fn release<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let Some(session) = hold.session::<Session>() else { return Ok(Released::NotOwner) };
            let freed = self.shared.free(&hold.claim.owner, session).await?;
            Ok(if freed { Released::Released } else { Released::NotOwner })
        })
    }

    /// A wait or an attempt that was dropped has closed its socket by that; what is left is a lock that was granted.
    fn abandon<'a>(&'a self, claim: &'a Arc<Claim>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(session) = self.shared.session_of(&claim.owner) else { return Ok(()) };
            self.shared.free(&claim.owner, &session).await.map(drop)
        })
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Option<Note>>> {
        Box::pin(self.shared.bounded(async move {
            let link = match self.shared.unpark().await? {
                Some(link) => link,
                None => Link::connect(&self.shared.address).await?,
            };
            let (link, note) = link.note(&name_of(key)).await?;
            self.shared.park(link).await;
            Ok(note.map(|note| Note::from_stored(&note)))
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            while let Ok(Some(link)) = self.shared.unpark().await {
                link.close(&self.shared.clock).await;
            }
            self.shared.parked.clear();
        })
    }
}

/// What named locks can do. The tokens are as good as the clock after a failover to a replica that lags.
fn capabilities() -> Capabilities {
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(365 * 24 * 3600));
    Capabilities {
        expiry: Expiry::Session,
        ttl: TtlRange { min, max, step: min },
        expires_alone: true,
        fencing: Fencing::MonotonicUnlessFailover,
        fair: false,
        read_write: false,
        permits: false,
        min_hold: false,
        once_per: false,
        cohort: false,
        carries: false,
        together: false,
        wake: WakeStyle::Grant,
        connection_per_hold: true,
        takeover_delay: Duration::from_secs(1),
        durability: Durability::Memory,
        max_key_bytes: MAX_KEY_BYTES,
        any_key: true,
    }
}

/// The server folds case and takes 64 characters at most, so the name is a hash: 248 bits never meet.
fn name_of(key: &LockKey) -> String {
    let mut name = String::with_capacity(64);
    name.push_str("d1");
    for byte in Sha256::digest(key.as_str().as_bytes()).iter().take(31) {
        // Writing into a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn names_are_frozen_short_and_differ_by_case_and_suffix() {
        let name = |text: &'static str| name_of(&LockKey::new("shop", Key::text(text)).unwrap());
        assert_eq!(name("a"), NAME_OF_A);
        assert_eq!(name("a").len(), 64);
        assert_ne!(name("a"), name("A"));
        assert_ne!(name("a"), name("a "));
    }

    /// SHA-256 of `dl1:shop:a`, cut.
    const NAME_OF_A: &str = "d17889320ee3fd9adf9f07eb98613e8230b258aa6cdaf0b57090a49f6a16373b";
}
