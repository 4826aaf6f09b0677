//! The store: its connections, how it is opened, and how a request finds its connection.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{Claim, Durability, Error, Fencing, Hold, Origin, Profile, Result, Standing, TtlRange};
use dlock_store::{Address, CallerRuntime, Clock, PerRuntime, background};
use futures::future::BoxFuture;

use crate::connection::FileConnection;
use crate::context::StoreContext;
use crate::file::{DatabaseFile, FORM};
use crate::modes::give_up;
use crate::time::Time;
use crate::worker::Worker;
use crate::{renewals, schema, wakes};

/// Locks in one SQLite file. See the [crate](crate).
#[derive(Debug)]
pub struct Sqlite {
    pub(super) context: Arc<StoreContext>,
    pub(super) profile: Profile,
    /// A connection for each runtime: a blocked one cannot hold up the others.
    pub(super) workers: PerRuntime<Arc<Worker>>,
    /// Renewals have a connection of their own, driven by our thread: no crowd of callers can delay them.
    pub(super) renewals: Worker,
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
        Self::open_at(&Address::parse(url, &FORM)?, clock).await
    }

    pub(crate) async fn open_at(address: &Address, clock: &Clock) -> Result<Self> {
        // Sleeping on the clock needs dlock's own thread.
        let background = background()?;
        let context = Arc::new(StoreContext::new(DatabaseFile::of(address)?, Time::of(clock)?));
        let named = |error: Error| error.at(&context.database.path.display().to_string());
        let opened = schema::prepare(&context).await.map_err(named)?;
        let renewals = Worker::of_renewals(context.clone(), opened);
        background.spawn(renewals.task());
        Ok(Self { context, profile: profile(), workers: PerRuntime::new(), renewals })
    }

    /// The worker of the runtime that we are in.
    async fn worker(&self) -> Result<Arc<Worker>> {
        let context = self.context.clone();
        let open = || async move {
            let worker = Worker::new(context);
            CallerRuntime::here()?.spawn(worker.task());
            Ok(Arc::new(worker))
        };
        Ok(self.workers.get(open).await?.value)
    }

    /// Runs a request for this claim on the worker of the runtime that we are in.
    pub(super) async fn run<T, R>(&self, claim: &Arc<Claim>, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut FileConnection, &'a StoreContext, &'a Arc<Claim>) -> BoxFuture<'a, Result<T>>
            + Send
            + 'static,
    {
        let claim = claim.clone();
        self.change(move |connection, context| Box::pin(async move { request(connection, context, &claim).await }))
            .await
    }

    /// Runs a request that commits, on the worker of the runtime that we are in.
    pub(super) async fn change<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut FileConnection, &'a StoreContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (worker, context) = (self.worker().await?, self.context.clone());
        worker.run(move |connection| Box::pin(async move { request(connection, &context).await })).await
    }

    pub(super) async fn renew_all(&self, holds: &[&Hold]) -> Result<Vec<Standing>> {
        let context = self.context.clone();
        let claims: Vec<_> = holds.iter().map(|hold| hold.claim.clone()).collect();
        self.renewals
            .run(move |connection| Box::pin(async move { renewals::renew(connection, &context.time, &claims).await }))
            .await
    }

    /// Runs on the worker of the attempts. An acquisition may still be under way there, and the worker runs requests in
    /// their order.
    pub(super) async fn abandon_claim(&self, claim: &Arc<Claim>) -> Result<()> {
        let (context, given_up) = (self.context.clone(), claim.clone());
        // A claim without an origin is asked for on the runtime that is here.
        let origin = claim.origin.or_else(Origin::here);
        let worker = origin.and_then(|origin| self.workers.peek(origin));
        let worker = worker.as_ref().map_or(&self.renewals, |worker| &worker.value);
        worker
            .run_from_elsewhere(move |connection| {
                Box::pin(async move { give_up(connection, &context, &given_up).await })
            })
            .await
    }

    /// A read does not commit, so it checks by itself that the path still leads to this file.
    pub(super) async fn read<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut FileConnection, &'a StoreContext) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let (worker, context) = (self.worker().await?, self.context.clone());
        let file = context.looks.look().await?;
        worker
            .run(move |connection| {
                Box::pin(async move {
                    connection.expect_file(file)?;
                    request(connection, &context).await
                })
            })
            .await
    }
}

/// The profile of a file.
fn profile() -> Profile {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    let ttl = TtlRange::new(Duration::from_millis(10), TEN_YEARS).in_steps_of(Duration::from_millis(1));
    Profile::new("sqlite", ttl).with(|sqlite| {
        sqlite.fencing = Fencing::Monotonic;
        (sqlite.read_write, sqlite.permits) = (true, true);
        sqlite.wake = wakes::STYLE;
        sqlite.takeover_delay = Duration::from_millis(20);
        sqlite.durability = Durability::Node;
        #[cfg(target_os = "linux")]
        {
            sqlite.holds_in_a_row = Some(dlock_store::Streaks::SHARE);
        }
    })
}
