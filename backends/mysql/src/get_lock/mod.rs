//! Locks by `GET_LOCK` of MySQL and MariaDB: a lock belongs to a session and ends with it.
//!
//! Every hold, and every waiter, has a connection of its own; it is shared with nobody while it holds a lock. The
//! server is told to end a session that is silent for the ttl, so a host that vanished does not hold for ever. Waiting
//! is one request: the server grants in its own order and the grant is the answer.
//!
//! A session that ends, by whatever way, frees its lock at once. A [monitor] sees that within 300 ms and a round trip.
//!
//! Named locks live in the memory of one server, for all of its databases, and in no replica: after a failover nobody
//! holds anything. The fencing tokens are in a table (`dlock_named`, made at the first start), with one row for every
//! key that was ever locked; rows are never deleted, and none need be.

mod address;
mod fault;
mod link;
mod monitor;
mod session;
mod table;
mod tls;

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::engine::{Run, background};
use dlock_contract::{
    Attempt, Backend, BootInstant, Capabilities, Claim, Clock, Durability, Error, Expiry, Fencing, Hold, LockKey,
    MAX_KEY_BYTES, Note, Opener, Owner, PerRuntime, Released, Result, Signal, Stand, Standing, TtlRange, Validity,
    Wake, WakeStyle,
};
use futures::future::{BoxFuture, join_all};
use sha2::{Digest, Sha256};

use self::address::Address;
pub(crate) use self::fault::fault;
use self::link::{Answer, Link, PATIENCE};
use self::monitor::{Monitor, TOLD};
use self::session::Session;

/// Opens a store by its URL.
pub const OPENER: Opener = Opener::new(&["mysql", "mariadb"], |url, clock| Box::pin(open(url, clock)));

/// Opens `mysql://user:password@host:port/database`.
async fn open(url: &str, clock: &Clock) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(GetLock::open(url, clock).await?))
}

/// How many clean connections are kept for the next holds.
const PARKED: usize = 16;

/// Locks by `GET_LOCK`: each belongs to a session, and the server frees it when that session ends.
#[derive(Debug)]
pub struct GetLock {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    /// Ends with the backend.
    _watch: Run<()>,
}

/// What waiters need too, which outlive the borrow of the backend.
#[derive(Debug)]
struct Shared {
    address: Address,
    clock: Clock,
    /// Clean connections, by the runtime that drives them.
    parked: PerRuntime<Arc<Mutex<Vec<Link>>>>,
    /// Which session holds for whom: an owner that asks again is told so, and one that gives up is found.
    monitor: Arc<Monitor>,
}

impl GetLock {
    /// Opens `mysql://user:password@host:port/database` or `mariadb://…`. Special characters in the account are
    /// percent-encoded. With `?socket=path` the connection goes over a Unix socket. A host that is not this one must say
    /// `tls=verify` (with `ca`, `cert` and `key`, which are files), `tls=require` or `tls=off`; only the first keeps the
    /// password from a rogue server.
    ///
    /// # Errors
    /// Where the server cannot be reached within five seconds, refuses the account, is a replica or one of several
    /// writable nodes, or where the table is missing and may not be made.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        let address = Address::parse(url)?;
        // On our thread: the connection becomes the monitor's, and must not end with the caller's runtime.
        let background = background()?;
        let opening = {
            let (address, clock) = (address.clone(), clock.clone());
            async move {
                let preparing = async { table::prepare(Link::connect(&address).await?).await };
                bounded(&clock, preparing).await
            }
        };
        let link = background.run(opening).await??;
        let monitor = Arc::new(Monitor::new(&address, clock, link));
        let watch = background.run(monitor.clone().watch());
        let shared = Arc::new(Shared { address, clock: clock.clone(), parked: PerRuntime::new(), monitor });
        Ok(Self { shared, capabilities: capabilities(), _watch: watch })
    }
}

/// Ends `work` if the server does not answer in time. Its connection closes with it.
async fn bounded<T>(clock: &Clock, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::outage(format!("the server did not answer within {PATIENCE:?}"));
    clock.timeout_at(clock.now().after(PATIENCE), work).await.ok_or_else(late)?
}

impl Shared {
    async fn bounded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        bounded(&self.clock, work).await
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
        let Some(session) = self.monitor.session_of(&claim.owner) else { return Ok(None) };
        let Some(from) = session.confirm(&self.clock).await? else { return Ok(None) };
        hold_of(session, claim, from).map(Some)
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
        let link = Link::connect(&self.address).await.map_err(Error::never_sent)?;
        link.end_after(ttl).await?.lock(name, Duration::ZERO).await
    }

    /// Makes a hold of a lock that the server has granted.
    async fn take(&self, link: Link, name: String, claim: &Arc<Claim>) -> Result<Hold> {
        // From here on the server counts the silence anew: it has the session, and so the lock, when it answers.
        let from = self.clock.now();
        let (link, token) = link.stamp(&name, claim.note.as_str()).await?;
        let session = Arc::new(Session::new(&name, token, link, from));
        self.monitor.add(claim.owner, &session);
        hold_of(session, claim, from)
    }

    /// Frees what this session holds; true if it held it when this was called.
    async fn free(&self, owner: &Owner, session: &Session) -> Result<bool> {
        let freed = self.bounded(session.free()).await;
        self.monitor.remove(owner, session);
        match freed {
            Ok(Some(link)) => {
                self.park(link).await;
                Ok(true)
            }
            Ok(None) => Ok(false),
            // The connection is broken on our side. The server may know the session still, and frees the lock later.
            Err(_) if self.monitor.sees(session).await => Ok(true),
            Err(error) => Err(error),
        }
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

fn hold_of(session: Arc<Session>, claim: &Arc<Claim>, from: BootInstant) -> Result<Hold> {
    let hold = Hold::new(claim.clone(), session.token, Validity { from, granted: claim.ttl })?;
    Ok(hold.ended_by(session.ending.clone()).with_session(session))
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
                Some(session) => {
                    let from = session.confirm(&self.shared.clock).await?;
                    let renewed = |from| Standing::Renewed(Validity { from, granted: hold.claim.ttl });
                    Ok(from.map_or(Standing::Lost, renewed))
                }
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
            let Some(session) = self.shared.monitor.session_of(&claim.owner) else { return Ok(()) };
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
            self.shared.monitor.close().await;
        })
    }
}

/// What named locks can do. The tokens are as good as the clock after a failover to a replica that lags.
fn capabilities() -> Capabilities {
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(365 * 24 * 3600));
    Capabilities {
        expiry: Expiry::Session { told: TOLD },
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
    use dlock_contract::Key;

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
