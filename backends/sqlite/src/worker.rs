//! The task that owns one connection to the file, and runs the requests on it.
//!
//! A request runs in that task to its end, whether its caller is polled or not. If a caller kept the connection in its
//! own future, then one that is not polled would hold up all others. Requests run in the order in which they were sent,
//! so an abandon comes after the attempt that it undoes.
//!
//! The task belongs to the runtime of its callers, since a hop to another thread costs as much as a request. That
//! runtime may be blocked; an abandon comes from elsewhere, and drives the task itself meanwhile.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dlock_contract::{BootInstant, Error, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, Shared, select};
use sqlx::Connection;
use tokio::sync::{mpsc, oneshot};

use super::connection::FileConnection;
use super::context::StoreContext;
use super::{schema, sweep};

/// The way to a connection's task. When it is dropped, the task ends, and the connection with it.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: mpsc::UnboundedSender<Arc<Queued>>,
    task: Task,
}

/// The task that drives the connection, by whichever caller polls it. It ends when its worker is dropped.
pub(super) type Task = Shared<BoxFuture<'static, ()>>;

/// The next job of the task; none if its caller is gone.
type Queued = Mutex<Option<Job>>;

type Job = Box<dyn for<'a> FnOnce(&'a mut Driver) -> BoxFuture<'a, ()> + Send>;

/// The connection and its upkeep, owned by the task.
#[derive(Debug)]
struct Driver {
    context: Arc<StoreContext>,
    connected: Option<FileConnection>,
    /// The next deletion of rows that kept locks left behind. `None` for the worker of the renewals, because renewals
    /// must not wait for it.
    sweeps_at: Option<BootInstant>,
}

impl Worker {
    /// A worker for callers. The caller must spawn its task.
    pub(super) fn new(context: Arc<StoreContext>) -> Self {
        let sweeps_at = Some(context.time.clock().now());
        Self::driven(Driver { context, connected: None, sweeps_at })
    }

    /// The worker for renewals. The caller must spawn its task.
    pub(super) fn of_renewals(context: Arc<StoreContext>, connected: FileConnection) -> Self {
        Self::driven(Driver { context, connected: Some(connected), sweeps_at: None })
    }

    fn driven(driver: Driver) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        Self { jobs, task: driver.drive(queue).boxed().shared() }
    }

    pub(super) fn task(&self) -> Task {
        self.task.clone()
    }

    /// Runs a request on the connection, and connects first if needed.
    pub(super) async fn run<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut FileConnection) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        let answer = self
            .give(move |driver| {
                Box::pin(async move { request(driver.ready().await.map_err(Error::never_sent)?).await })
            })
            .await;
        answer.unwrap_or_else(|| Err(Error::outage("the task of the connection to the database file has ended")))
    }

    /// Runs a request from another runtime. The runtime of the worker's task may be blocked.
    pub(super) async fn run_from_elsewhere<T, R>(&self, request: R) -> Result<T>
    where
        T: Send + 'static,
        R: for<'a> FnOnce(&'a mut FileConnection) -> BoxFuture<'a, Result<T>> + Send + 'static,
    {
        match select(pin!(self.run(request)), self.task()).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), answer)) => answer.await,
        }
    }

    /// Closes the connection after all earlier requests.
    pub(super) async fn close(&self) {
        self.give(|driver| {
            Box::pin(async {
                if let Some(connected) = driver.connected.take() {
                    // The file is consistent either way; closing in order also tidies its log up.
                    let _ = connected.conn.close().await;
                }
            })
        })
        .await;
    }

    async fn give<T, J>(&self, job: J) -> Option<T>
    where
        T: Send + 'static,
        J: for<'a> FnOnce(&'a mut Driver) -> BoxFuture<'a, T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |driver| {
            Box::pin(async move {
                // The caller may be gone meanwhile.
                let _ = sender.send(job(driver).await);
            })
        });
        let queued = Arc::new(Mutex::new(Some(job)));
        let _gone = Gone(Arc::downgrade(&queued));
        self.jobs.send(queued).ok()?;
        receiver.await.ok()
    }
}

/// Cancels a request that has not begun when its caller goes away. Otherwise useless requests would pile up behind a
/// disk that hangs.
struct Gone(Weak<Queued>);

impl Drop for Gone {
    fn drop(&mut self) {
        if let Some(queued) = self.0.upgrade() {
            drop(take(&queued));
        }
    }
}

fn take(queued: &Queued) -> Option<Job> {
    queued.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Driver {
    /// Runs one request after the other, until the worker is dropped.
    async fn drive(mut self, mut queue: mpsc::UnboundedReceiver<Arc<Queued>>) {
        let mut index_lost = self.context.index_lost.subscribe();
        loop {
            let queued = tokio::select! {
                queued = queue.recv() => queued,
                _ = index_lost.changed() => {
                    self.connected = None;
                    continue;
                }
            };
            let Some(queued) = queued else { return };
            let Some(job) = take(&queued) else { continue };
            job(&mut self).await;
            self.sweep().await;
        }
    }

    async fn ready(&mut self) -> Result<&mut FileConnection> {
        if self.connected.as_ref().is_none_or(|connected| connected.broken) {
            self.connected = None;
            if self.context.is_closed.load(Ordering::SeqCst) {
                return Err(Error::closed());
            }
            let opened = schema::prepare(&self.context).await?;
            return Ok(self.connected.insert(opened));
        }
        self.connected.as_mut().ok_or_else(|| Error::outage("the connection to the database file is gone"))
    }

    /// Runs after the answer, so that only the next caller may have to wait for it.
    async fn sweep(&mut self) {
        let time = &self.context.time;
        let due = self.sweeps_at.is_some_and(|at| at <= time.clock().now());
        let Some(connected) = self.connected.as_mut().filter(|connected| due && !connected.broken) else { return };
        // If this sweep fails, the next one deletes its rows too.
        let more = sweep::kept(connected, time).await.unwrap_or(false);
        let pause = if more { std::time::Duration::ZERO } else { sweep::SWEEP_INTERVAL };
        self.sweeps_at = Some(time.clock().now().after(pause));
    }
}
