//! The store: its parts, how it is opened, and one attempt with the checks around it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_contract::{
    Attempt, Claim, Error, ErrorKind, Key, LockKey, Mode, Owner, Profile, Queue, Result, Signal, Wake, WakeStyle,
};
use dlock_store::Clock;
use futures::FutureExt;

use crate::connections::check;
use crate::connections::pool::Connections;
use crate::connections::watch::Watch;
use crate::layout::slots::slot_of;
use crate::layout::units::millis;
use crate::layout::value::QueueEntry;
use crate::lock::profile::profile;
use crate::push::pushes::Pushes;
use crate::queue::contended::Contended;
use crate::queue::foreign_clients::ForeignClients;
use crate::queue::limits::GRANT_LIMIT;
use crate::queue::places::Places;
use crate::topology::target::Target;
use crate::url::settings::Layout;

/// Locks in one Redis server.
// Aligned: all threads read it. Beside a value that all threads write, such as a counter, each read would come from another
// processor's cache.
#[repr(align(128))]
pub struct Redis {
    pub(crate) connections: Arc<Connections>,
    pub(crate) places: Arc<Places>,
    pub(crate) pushes: Pushes,
    pub(crate) contended: Contended,
    pub(crate) foreign_clients: ForeignClients,
    pub(crate) profile: Profile,
    pub(crate) clock: Clock,
    /// Follows failovers.
    pub(crate) watch: Mutex<Option<Watch>>,
}

impl Redis {
    /// Connects to `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=…&user=…&pass=…]`, to the primary that
    /// `redis-sentinel://[user:password@]host[:port],…/name[/db]` leads to, or to the cluster of
    /// `redis-cluster://[user:password@]host[:port],…`; with `rediss` in the place of `redis` by TLS.
    ///
    /// In a user or password, `@ : / % # ?` are percent-encoded. `backends/redis/README.md` lists the parameters: `eviction`,
    /// `restart_guard`, `failover_guard`, `wait_replicas`, files for TLS, the sentinels' own credentials.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) for a URL that cannot be used or that asks for another
    /// layout, and for a server that may evict locks;
    /// [`ErrorKind::Unsupported`](dlock_contract::ErrorKind::Unsupported) below Redis 7.0 and for a cluster behind a plain URL; [`ErrorKind::NotPrimary`](dlock_contract::ErrorKind::NotPrimary) for a replica;
    /// [`ErrorKind::PermissionDenied`](dlock_contract::ErrorKind::PermissionDenied), with the missing rights;
    /// [`ErrorKind::Outage`](dlock_contract::ErrorKind::Outage) if there is no answer, or no majority of the sentinels.
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let target = Target::parse(url)?;
        target.settings.check_layout(Layout::Own)?;
        Self::open(target, clock).await
    }

    pub(crate) async fn open(target: Target, clock: &Clock) -> Result<Self> {
        // Our thread runs the timers that bound what follows.
        dlock_store::background()?;
        let connections = Arc::new(Connections::new(target, clock.clone()));
        check::check_and_warn(&connections).await?;
        connections.note_form(connections.form()).await?;
        connections.open_for_renewals().await?;
        connections.meet_all().await;
        let mut profile = profile();
        if connections.target.settings.wait_replicas > 0 {
            profile.wake = WakeStyle::Hint;
        }
        let watch = Watch::start(&connections)?;
        let places = Arc::<Places>::default();
        let process: Arc<str> = Owner::fresh()?.to_hex().get(..16).unwrap_or_default().into();
        Ok(Self {
            pushes: Pushes::new(connections.clone(), places.clone(), process),
            connections,
            places,
            contended: Contended::default(),
            foreign_clients: ForeignClients::default(),
            profile,
            clock: clock.clone(),
            watch: Mutex::new(watch),
        })
    }

    /// One attempt. Before it the quarantine is checked, after it the quarantine again and the replicas.
    pub(crate) async fn guarded(&self, claim: &Arc<Claim>, queue: Queue) -> Result<Attempt> {
        self.connections.quarantine.rules.asks_for(claim.ttl);
        // Opens the connection if there is none, and so reads the server's history.
        let mut shared = self.connections.here().await.map_err(Error::never_sent)?;
        self.connections.admit(&claim.key).await.map_err(Error::never_sent)?;
        // The check may have taken a while, and the server may have changed since.
        if !self.connections.is_usable(&shared) {
            shared = self.connections.here().await.map_err(Error::never_sent)?;
        }
        // Read before the server can grant this request.
        let high = self.connections.high();
        match self.attempt(shared, claim, queue).await? {
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.hearing(wake, high))),
            Attempt::Acquired(hold)
                if self.connections.target.settings.wait_replicas == 0 && self.connections.admits(&claim.key) =>
            {
                Ok(Attempt::Acquired(hold))
            }
            attempt => Box::pin(self.checked(claim, attempt, high)).await,
        }
    }

    /// Takes a lock that nobody else wants, and releases it: a server may answer, and refuse every lock.
    pub(crate) async fn probe(&self) -> Result<()> {
        let claim = Arc::new(self.probe_claim()?);
        match self.guarded(&claim, Queue::Leave).await {
            Ok(Attempt::Acquired(hold)) => self.free(&hold).await.map(drop),
            Ok(other) => {
                Err(Error::new(ErrorKind::Protocol, format!("a lock that nobody else wants was refused: {other:?}")))
            }
            Err(error) => {
                if error.may_have_left() {
                    let _ = self.give_up(&claim).await;
                }
                Err(error)
            }
        }
    }

    /// A claim for a lock of a server that answers. The findings name the servers that do not.
    fn probe_claim(&self) -> Result<Claim> {
        let Some(servers) = self.connections.cluster() else { return probe_claim(PROBE_TTL) };
        let mut claim = probe_claim(PROBE_TTL)?;
        for _ in 0..PROBE_DRAWS {
            if servers.of(Some(slot_of(&claim.key)))?.is_connected() {
                break;
            }
            claim = probe_claim(PROBE_TTL)?;
        }
        Ok(claim)
    }

    /// Checks an attempt again: the server may be in quarantine by now, or replicas must have the lock too.
    pub(crate) async fn checked(&self, claim: &Arc<Claim>, attempt: Attempt, high: u64) -> Result<Attempt> {
        let replicas = self.connections.target.settings.wait_replicas;
        match attempt {
            Attempt::Acquired(hold) => {
                // If the lock is refused now, the engine releases it, as after every failure.
                self.connections.admit(&claim.key).await?;
                if replicas == 0 {
                    Ok(Attempt::Acquired(hold))
                } else {
                    self.replicated(hold).await.map(Attempt::Acquired)
                }
            }
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.hearing(wake, high))),
            other => Ok(other),
        }
    }

    /// Checks a pushed grant like an answer. If the check fails, the waiter asks. `high` is above all tokens that this process
    /// saw before the request.
    fn hearing(&self, mut wake: Wake, high: u64) -> Wake {
        if self.connections.target.settings.wait_replicas > 0 {
            return Self::as_hint(wake);
        }
        let Some(signal) = wake.signal.take() else { return wake };
        let connections = self.connections.clone();
        let believed = move |news| match news {
            // The hold is dropped here; its owner finds it again by asking.
            Signal::Granted(hold) if !connections.believes(&hold, high) => Signal::Ask,
            news => news,
        };
        wake.signal = Some(Box::pin(signal.map(move |news| news.map(believed))));
        wake
    }

    pub(crate) fn entry<'a>(&'a self, claim: &'a Claim) -> QueueEntry<'a> {
        QueueEntry { process: &self.pushes.process, grant_ms: millis(grant_of(claim)), claim }
    }
}

/// The ttl of the lock that a readiness probe takes.
pub(crate) const PROBE_TTL: Duration = Duration::from_secs(1);

/// How many names a probe draws until one of them lies at a server that answers.
const PROBE_DRAWS: u32 = 1000;

/// A claim for a lock that nobody else wants. Its name is one of dlock's under each layout: an account may be without rights
/// on other names.
pub fn probe_claim(ttl: Duration) -> Result<Claim> {
    let key = LockKey::new("dlock", Key::text("ready:").value(&Owner::fresh()?.to_hex()))?;
    Claim::new(key, ttl, "ready")
}

/// How long a lock is granted to a waiter that has not confirmed it yet.
pub(crate) fn grant_of(claim: &Claim) -> Duration {
    // A lock that nobody renews must be granted for its full ttl at once.
    if claim.renewed { claim.ttl.min(GRANT_LIMIT) } else { claim.ttl }
}

/// Whether plain commands can serve the claim.
pub(crate) fn is_plain(claim: &Claim) -> bool {
    claim.mode == Mode::Exclusive && !claim.fair && claim.once_per.is_none()
}
