//! The store: its parts, how it is opened, and one attempt with the checks around it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock_contract::{Attempt, Capabilities, Claim, Clock, Error, Owner, Result, Signal, Stand, Wake, WakeStyle};
use futures::FutureExt;

use crate::capabilities::capabilities;
use crate::check;
use crate::connection::Connections;
use crate::layout::Entry;
use crate::line::{Contended, GRANT_LIMIT, Places};
use crate::push::Pushes;
use crate::settings::Layout;
use crate::strangers::Strangers;
use crate::target::Target;
use crate::topology::watch::Watch;
use crate::units::millis;

/// Locks in one Redis server.
// Aligned: see `registry::Shared`.
#[repr(align(128))]
pub struct Redis {
    pub(super) connections: Arc<Connections>,
    pub(super) places: Arc<Places>,
    pub(super) pushes: Pushes,
    pub(super) contended: Contended,
    pub(super) strangers: Strangers,
    pub(super) capabilities: Capabilities,
    pub(super) clock: Clock,
    /// Follows failovers.
    pub(super) watch: Mutex<Option<Watch>>,
}

impl Redis {
    /// Connects to `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=…&user=…&pass=…]`, to the primary that
    /// `redis-sentinel://[user:password@]host[:port],…/name[/db]` leads to, or to the cluster of
    /// `redis-cluster://[user:password@]host[:port],…`; with `rediss` in the place of `redis` by TLS.
    ///
    /// In a user or password, `@ : / % # ?` are percent-encoded. `docs/backends.md` lists the parameters: `eviction`,
    /// `restart_guard`, `failover_guard`, `wait_replicas`, files for TLS, the sentinels' own credentials.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`](dlock_contract::ErrorKind::ConfigInvalid) for a URL that cannot be used or that asks for another
    /// layout, and for a server that may evict locks;
    /// [`ErrorKind::Unsupported`](dlock_contract::ErrorKind::Unsupported) below Redis 7.0 and for a cluster behind a plain URL; [`ErrorKind::NotPrimary`](dlock_contract::ErrorKind::NotPrimary) for a replica;
    /// [`ErrorKind::PermissionDenied`](dlock_contract::ErrorKind::PermissionDenied), with the rights that lack; [`ErrorKind::Outage`](dlock_contract::ErrorKind::Outage) if there is no answer,
    /// or no majority of the sentinels.
    pub async fn connect(url: &str, clock: &Clock) -> Result<Self> {
        let target = Target::parse(url)?;
        target.settings.check_layout(Layout::Own)?;
        Self::open(target, clock).await
    }

    pub(super) async fn open(target: Target, clock: &Clock) -> Result<Self> {
        // Our thread runs the timers that bound what follows.
        dlock_contract::engine::background()?;
        let connections = Arc::new(Connections::new(target, clock.clone()));
        check::check(&connections).await?.tell(&connections);
        connections.open_for_renewals().await?;
        connections.meet_all().await;
        let mut capabilities = capabilities();
        if connections.target.settings.wait_replicas > 0 {
            capabilities.wake = WakeStyle::Hint;
            capabilities.carries = false;
        }
        // In a cluster it depends on their slots.
        capabilities.together = connections.cluster().is_none() && connections.target.settings.wait_replicas == 0;
        let watch = Watch::start(&connections)?;
        let places = Arc::<Places>::default();
        let process: Arc<str> = Owner::fresh()?.to_hex().get(..16).unwrap_or_default().into();
        Ok(Self {
            pushes: Pushes::new(connections.clone(), places.clone(), process),
            connections,
            places,
            contended: Contended::default(),
            strangers: Strangers::default(),
            capabilities,
            clock: clock.clone(),
            watch: Mutex::new(watch),
        })
    }

    /// One attempt, with a look at what the server may have forgotten before, and at its replicas after.
    pub(super) async fn guarded(&self, claim: &Arc<Claim>, stand: Stand) -> Result<Attempt> {
        self.connections.guards.asks_for(claim.ttl);
        // Opens the connection, if there is none, and so finds out.
        let mut shared = self.connections.here().await.map_err(Error::never_sent)?;
        self.connections.admit(&claim.key).await.map_err(Error::never_sent)?;
        // That may have taken a while, and the server may be another one since.
        if !self.connections.is_usable(&shared) {
            shared = self.connections.here().await.map_err(Error::never_sent)?;
        }
        // Before what comes of the request can have been granted.
        let high = self.connections.high();
        match self.attempt(shared, claim, stand).await? {
            Attempt::Contended(wake) => Ok(Attempt::Contended(self.hearing(wake, high))),
            Attempt::Acquired(hold)
                if self.connections.target.settings.wait_replicas == 0 && self.connections.admits(&claim.key) =>
            {
                Ok(Attempt::Acquired(hold))
            }
            attempt => Box::pin(self.checked(claim, attempt, high)).await,
        }
    }

    /// What is left of an attempt where the server has been found to forget, or where replicas must have it too.
    pub(super) async fn checked(&self, claim: &Arc<Claim>, attempt: Attempt, high: u64) -> Result<Attempt> {
        let replicas = self.connections.target.settings.wait_replicas;
        match attempt {
            Attempt::Acquired(hold) => {
                // What is refused now is undone by the core, as after every failure.
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

    /// News of a grant count as an answer does; else they are a reason to ask. No token that was seen before the lock was
    /// asked for is above `high`.
    fn hearing(&self, wake: Wake, high: u64) -> Wake {
        if self.connections.target.settings.wait_replicas > 0 {
            return Self::as_hint(wake);
        }
        let Wake { signal: Some(signal), .. } = wake else { return wake };
        let connections = self.connections.clone();
        let believed = move |news| match news {
            // The hold that is dropped here is found again by its owner.
            Signal::Granted(hold) if !connections.believes(&hold, high) => Signal::Ask,
            news => news,
        };
        Wake { signal: Some(Box::pin(signal.map(move |news| news.map(believed)))), ..wake }
    }

    pub(super) fn entry<'a>(&'a self, claim: &'a Claim) -> Entry<'a> {
        Entry { process: &self.pushes.process, grant_ms: millis(grant_of(claim)), claim }
    }
}

/// For how long a lock is granted to one that has not spoken yet.
pub(super) fn grant_of(claim: &Claim) -> Duration {
    // One that nobody renews must be granted for its full ttl at once.
    if claim.renewed { claim.ttl.min(GRANT_LIMIT) } else { claim.ttl }
}
