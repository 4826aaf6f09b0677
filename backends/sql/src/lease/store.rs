//! The store: how it is opened, and on which connection a request runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Claim, Durability, Fencing, Profile, Result, TtlRange, WakeStyle};
use dlock_store::{Clock, PerRuntime, Run, background};
use futures::future::BoxFuture;

use crate::connection::pending_attempts::PendingAttempts;
use crate::connection::pool::Pool;
use crate::connection::session::{StatementSession, StoreContext};
use crate::connection::sweeps::sweep_for_ever;
use crate::dialect::Dialect;
use crate::lease::queue::{HOLDS_PER_TURN, WaitQueue};
use crate::lease::sweep::sweep;
use crate::settings::Settings;
use crate::tables::shedlock;
use crate::tables::statements::LeaseStatements;
use crate::ways::{Way, Ways};

/// The connections for renewals. One is enough; the second one serves while the first waits for a row.
const RENEWAL_CONNECTIONS: usize = 2;

/// Locks in rows of an SQL table.
pub struct LeaseRow<D: Dialect> {
    pub(crate) profile: Profile,
    pub(crate) context: Arc<StoreContext<D>>,
    pub(crate) pending_attempts: Arc<PendingAttempts>,
    pub(crate) ways: Arc<Ways>,
    pub(crate) wait_queue: Arc<WaitQueue<D>>,
    pools: PerRuntime<Arc<Pool<D>>>,
    /// On our own thread, so that no runtime of the caller's that is blocked stops them.
    pub(crate) renewals: Arc<Pool<D>>,
    /// Ends with the store.
    _sweep: Run<()>,
}

impl<D: Dialect> LeaseRow<D> {
    /// Opens the store: connects once, and makes the tables if they are missing.
    ///
    /// # Errors
    /// If the dialect finds something wrong with the server, the account or the tables.
    pub async fn open(dialect: D, settings: Settings, clock: &Clock) -> Result<Self> {
        let statements = match dialect.shedlock() {
            Some(shed) => shedlock::statements(dialect.words(), shed),
            None => LeaseStatements::new(dialect.words()),
        };
        let kind = dialect.words().kind;
        let context = StoreContext::new(dialect, statements, settings, clock);
        let at = context.clone();
        let renewals = background()?.run(async move { Pool::here(&at, RENEWAL_CONNECTIONS).map(Arc::new) }).await??;
        let place = renewals.run(|session| Box::pin(session.prepare())).await?;
        let swept = context.clone();
        let sweep = background()?.run(sweep_for_ever(
            clock.clone(),
            settings.sweep_every,
            Arc::downgrade(&renewals),
            move |pool| sweep(swept.clone(), pool),
        ));
        let way = if context.dialect.shedlock().is_some() { Way::Shedlock } else { Way::Lease };
        let (pending_attempts, ways, pools) = (Arc::default(), Arc::new(Ways::new(way, &place)), PerRuntime::new());
        let wait_queue = Arc::new(WaitQueue::new(&context, &pending_attempts));
        // Known since the tables were prepared.
        let mut profile = profile(kind, wait_queue.is_supported());
        if context.dialect.shedlock().is_some() {
            (profile.any_key, profile.ttl) = (false, shedlock::TTL);
        }
        Ok(Self { profile, context, pending_attempts, ways, wait_queue, pools, renewals, _sweep: sweep })
    }

    /// The pool of the runtime that we are in.
    async fn pool(&self) -> Result<Arc<Pool<D>>> {
        let context = self.context.clone();
        let open = || async move { Pool::here(&context, context.settings.max_connections).map(Arc::new) };
        Ok(self.pools.get(open).await?.value)
    }

    /// Runs a request on a connection of the runtime that we are in.
    pub(crate) async fn run<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut StatementSession<D>) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        self.pool().await?.run(request).await
    }

    /// Like [`run`](Self::run), for a request about one claim.
    pub(crate) async fn run_for<T, R>(&self, claim: &Arc<Claim>, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut StatementSession<D>, &'a Arc<Claim>) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let claim = claim.clone();
        self.run(move |session| Box::pin(async move { request(session, &claim).await })).await
    }

    pub(crate) fn close_pools(&self) {
        self.pools.all().iter().chain([&self.renewals]).for_each(|pool| pool.close());
        self.pools.close();
        self.wait_queue.close();
    }
}

impl<D: Dialect> fmt::Debug for LeaseRow<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseRow").field("context", &self.context).finish_non_exhaustive()
    }
}

/// The profile of a row. After a failover to a replica that lags, tokens rise only if its clock is not behind.
fn profile(kind: &'static str, has_queue: bool) -> Profile {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    let ttl = TtlRange::new(Duration::from_millis(10), TEN_YEARS).in_steps_of(Duration::from_millis(1));
    Profile::new(kind, ttl).with(|row| {
        row.fencing = Fencing::MonotonicUnlessFailover;
        row.wake = match has_queue {
            true => WakeStyle::Grant,
            false => WakeStyle::Poll { from: Duration::from_millis(5), to: Duration::from_millis(100) },
        };
        // In ShedLock's table nothing says who waits.
        row.holds_in_a_row = has_queue.then_some(HOLDS_PER_TURN);
        row.takeover_delay = Duration::from_millis(50);
        row.durability = Durability::Node;
    })
}
