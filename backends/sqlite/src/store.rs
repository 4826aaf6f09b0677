//! The store: its connections, how it is opened, and how a request finds its connection.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::engine::{self, background};
use dlock_contract::{
    Capabilities, Claim, Clock, Durability, Expiry, Fencing, Hold, MAX_KEY_BYTES, PerRuntime, Result, Standing,
    TtlRange, WakeStyle,
};
use futures::future::BoxFuture;

use crate::file::Place;
use crate::line::{Connected, Line};
use crate::requests::give_up;
use crate::site::Site;
use crate::time::Time;
use crate::{renewals, schema};

/// Locks in one SQLite file. See the [crate](crate).
#[derive(Debug)]
pub struct Sqlite {
    pub(super) site: Arc<Site>,
    pub(super) capabilities: Capabilities,
    /// A connection for each runtime: a blocked one cannot hold up the others.
    pub(super) lines: PerRuntime<Arc<Line>>,
    /// Renewals have a connection of their own, driven by our thread: no crowd of callers can stand before them.
    pub(super) renewals: Line,
}

impl Sqlite {
    /// Opens `sqlite://relative/path` or `sqlite:///absolute/path`; creates the file, but no folder. Parts of the path
    /// may be percent-encoded. `?network=allow` lifts the refusal of filesystems that are not known to be local,
    /// `?shared=allow` that of files which others own or may write.
    ///
    /// # Errors
    /// Where the file cannot be created, read or written, lies on a filesystem that is not known to be local, belongs
    /// to somebody else or may be written by others, is no database, or is somebody else's database.
    pub async fn open(url: &str, clock: &Clock) -> Result<Self> {
        // Who sleeps on the clock needs our thread.
        let background = background()?;
        let site = Arc::new(Site::new(Place::parse(url)?, Time::of(clock)?));
        let opened = schema::prepare(&site).await?;
        let renewals = Line::of_renewals(site.clone(), opened);
        background.spawn(renewals.task());
        Ok(Self { site, capabilities: capabilities(), lines: PerRuntime::new(), renewals })
    }

    /// The line of the runtime that we are in.
    async fn line(&self) -> Result<Arc<Line>> {
        let site = self.site.clone();
        let open = || async move {
            let line = Line::new(site);
            engine::Place::here()?.spawn(line.task());
            Ok(Arc::new(line))
        };
        Ok(self.lines.get(open).await?.value)
    }

    /// Runs a request for this claim on the line of the runtime that we are in.
    pub(super) async fn run<T, R>(&self, claim: &Arc<Claim>, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut Connected, &'a Site, &'a Arc<Claim>) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let claim = claim.clone();
        self.change(move |turn, site| Box::pin(async move { request(turn, site, &claim).await })).await
    }

    /// Runs a request that commits, on the line of the runtime that we are in.
    pub(super) async fn change<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut Connected, &'a Site) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (line, site) = (self.line().await?, self.site.clone());
        line.run(move |turn| Box::pin(async move { request(turn, &site).await })).await
    }

    pub(super) async fn renew_all(&self, holds: &[&Hold]) -> Result<Vec<Standing>> {
        let site = self.site.clone();
        let claims: Vec<_> = holds.iter().map(|hold| hold.claim.clone()).collect();
        self.renewals.run(move |turn| Box::pin(async move { renewals::renew(turn, &site.time, &claims).await })).await
    }

    /// Over the line on which the attempts ran, where an acquisition may still be under way: what is sent later is
    /// done later.
    pub(super) async fn abandon_claim(&self, claim: &Arc<Claim>) -> Result<()> {
        let (site, given_up) = (self.site.clone(), claim.clone());
        let line = claim.origin.and_then(|origin| self.lines.peek(origin));
        let line = line.as_ref().map_or(&self.renewals, |line| &line.value);
        line.run_from_elsewhere(move |turn| Box::pin(async move { give_up(turn, &site, &given_up).await })).await
    }

    /// A read commits nothing, so nobody looks there whether the file is still the one at the path.
    pub(super) async fn read<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut Connected, &'a Site) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (line, site) = (self.line().await?, self.site.clone());
        let file = site.looks.look().await?;
        line.run(move |turn| {
            Box::pin(async move {
                turn.expect_file(file)?;
                request(turn, &site).await
            })
        })
        .await
    }
}

/// What the file can do. Asking costs microseconds, so the polls are short; nothing is pushed.
fn capabilities() -> Capabilities {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    Capabilities {
        expiry: Expiry::Lease,
        ttl: TtlRange { min: Duration::from_millis(10), max: TEN_YEARS, step: Duration::from_millis(1) },
        expires_alone: true,
        fencing: Fencing::Monotonic,
        fair: false,
        read_write: true,
        permits: true,
        min_hold: true,
        once_per: true,
        cohort: false,
        carries: false,
        together: false,
        wake: WakeStyle::Poll { from: Duration::from_millis(2), to: Duration::from_millis(50) },
        connection_per_hold: false,
        takeover_delay: Duration::from_millis(20),
        durability: Durability::Node,
        max_key_bytes: MAX_KEY_BYTES,
        any_key: true,
    }
}
