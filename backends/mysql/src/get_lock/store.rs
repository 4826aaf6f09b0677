//! The store: its connections, how it is opened, and how a lock is taken and freed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::engine::{Run, background};
use dlock_contract::{
    Address, Attempt, BootInstant, Claim, Clock, Error, Expiry, Fencing, Hold, HoldId, Owner, PerRuntime, Profile,
    Queue, Result, RunsOn, Signal, TtlRange, Validity, Wake, WakeStyle,
};

use dlock_sql::{Way, Ways, way_name};

use super::link::{Answer, Link, PATIENCE};
use super::monitor::{Monitor, TOLD};
use super::name::name_of;
use super::session::Session;
use super::table;
use crate::server::{FORM, Server};

/// How many clean connections are kept for the next holds.
const PARKED: usize = 16;
/// After how long a silence the server ends a connection that was opened for inspection.
const INSPECTION: Duration = Duration::from_secs(60);

/// Locks by `GET_LOCK`: each belongs to a session, and the server frees it when that session ends.
#[derive(Debug)]
pub struct GetLock {
    pub(super) shared: Arc<Shared>,
    pub(super) profile: Profile,
    /// Ends with the backend.
    _watch: Run<()>,
}

/// The parts of the store that waiters share. A waiter outlives its borrow of the backend.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) clock: Clock,
    ways: Ways,
    /// Clean connections, by the runtime that drives them.
    pub(super) parked: PerRuntime<Arc<Mutex<Vec<Link>>>>,
    /// Which session holds for whom: an owner that asks again is told so, and one that gives up is found.
    pub(super) monitor: Arc<Monitor>,
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
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    pub(crate) async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        let server = Server::of(address)?;
        if let Some(option) = dlock_sql::OPTIONS.iter().find(|option| address.option(option.name).is_some()) {
            return Err(address
                .wrong(&format!("`{}` belongs to way=lease: a named lock has a connection of its own", option.name)));
        }
        // On our thread: the connection becomes the monitor's, and must not end with the caller's runtime.
        let background = background()?;
        let opening = {
            let (server, clock) = (server.clone(), clock.clone());
            async move {
                let preparing = async { table::prepare(Link::connect(&server).await?.autocommit().await?).await };
                bounded(&clock, preparing).await
            }
        };
        let link = background.run(opening).await??;
        let monitor = Arc::new(Monitor::new(&server, clock, link));
        let watch = background.run(monitor.clone().watch());
        let shared = Arc::new(Shared {
            server,
            clock: clock.clone(),
            ways: Ways::default(),
            parked: PerRuntime::new(),
            monitor,
        });
        Ok(Self { shared, profile: profile(), _watch: watch })
    }
}

/// Ends `work` if the server does not answer in time. Its connection closes with it.
async fn bounded<T>(clock: &Clock, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::outage(format!("the server did not answer within {PATIENCE:?}"));
    clock.timeout_at(clock.now().after(PATIENCE), work).await.ok_or_else(late)?
}

impl Shared {
    pub(super) async fn bounded<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        bounded(&self.clock, work).await
    }

    pub(super) async fn attempt(self: &Arc<Self>, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        if let Some(hold) = self.held_already(claim).await? {
            return Ok(Attempt::Acquired(hold));
        }
        if !self.ways.has(&claim.key) {
            let (link, found) = self.link().await?.agree(&way_name(&claim.key), Way::Named.word()).await?;
            self.park(link).await;
            self.ways.compare(&claim.key, &found, Way::Named)?;
        }
        let name = name_of(claim.key.as_str());
        let (link, answer) = self.ask(&name, claim.ttl).await?;
        match (answer, queue) {
            (Answer::Granted, _) => Ok(Attempt::Acquired(self.take(link, name, claim).await?)),
            (Answer::Taken, Queue::Leave) => {
                self.park(link).await;
                Ok(Attempt::Contended(Wake::poll()))
            }
            (Answer::Taken, Queue::Join { until: deadline, .. }) => {
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
        let link = Link::connect(&self.server).await.map_err(Error::never_sent)?;
        link.end_after(ttl).await?.lock(name, Duration::ZERO).await
    }

    /// Makes a hold of a lock that the server has granted.
    async fn take(&self, link: Link, name: String, claim: &Arc<Claim>) -> Result<Hold> {
        // From here on the server counts the silence anew: it has the session, and so the lock, when it answers.
        let from = self.clock.now();
        let hold = HoldId::of(&claim.owner);
        let (link, token) = link.stamp(&name, claim.key.as_str(), &hold.to_string(), claim.note.as_str()).await?;
        let session = Arc::new(Session::new(&name, hold, token, link, from));
        self.monitor.add(claim.owner, &session);
        hold_of(session, claim, from)
    }

    /// Frees what this session holds; true if it held it when this was called.
    pub(super) async fn free(&self, owner: &Owner, session: &Session) -> Result<bool> {
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

    /// A connection that holds nothing, for inspection.
    pub(super) async fn link(&self) -> Result<Link> {
        match self.unpark().await? {
            Some(link) => Ok(link),
            None => Link::connect(&self.server).await?.end_after(INSPECTION).await,
        }
    }

    pub(super) async fn unpark(&self) -> Result<Option<Link>> {
        let parked = self.parked.get(|| async { Ok(Arc::default()) }).await?.value;
        let now = self.clock.now();
        let mut parked = parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|link| link.is_fresh(now));
        Ok(parked.pop())
    }

    /// Keeps a connection that holds nothing.
    pub(super) async fn park(&self, mut link: Link) {
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
    Ok(Hold::new(claim.clone(), session.token, Validity::new(from, claim.ttl))?.with_session(session))
}

/// The profile of named locks. The tokens are as good as the clock after a failover to a replica that lags.
fn profile() -> Profile {
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(365 * 24 * 3600));
    Profile::new("mysql", TtlRange::new(min, max).in_steps_of(min)).with(|mysql| {
        mysql.expiry = Expiry::Session { told: TOLD };
        mysql.fencing = Fencing::MonotonicUnlessFailover;
        mysql.wake = WakeStyle::Grant;
        mysql.runs_on = RunsOn::OwnThread;
        mysql.takeover_delay = Duration::from_secs(1);
    })
}
