//! A program under load: many short holds of few keys, waiters that give up, a leader, a loss now and then.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use dlock::{Error, Key, Lock, Registry, Wait, distributed_lock, scheduled_lock};
use dlock_console::Console;
use dlock_testkit::servers::{Instance, Redis};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Never called: it is only shown.
#[distributed_lock(name = "shop::deduct", key = "stock:<id>", ttl = "20s", backend = "main")]
async fn deduct(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// Never called: it is only shown.
#[scheduled_lock(name = "nightly", at_most = "10m", once_per = "1h", backend = "main")]
async fn nightly() -> Result<(), Error> {
    Ok(())
}

pub(crate) struct Service {
    pub(crate) registry: Registry,
    pub(crate) redis: Arc<Instance>,
    /// Where the page is.
    pub(crate) url: String,
    runtime: Option<Runtime>,
}

impl Service {
    /// `more` adds locks and stores before the page is opened.
    pub(crate) fn start<F: Future<Output = Console>>(more: impl FnOnce(Registry, Console) -> F) -> Self {
        let _ = (deduct, nightly);
        let redis = Arc::new(Instance::start(Redis { aof_always: true, ..Redis::default() }).unwrap());
        let runtime = Runtime::new().unwrap();
        let registry = Registry::new();
        let url = runtime.block_on(async {
            registry.connect("main", &format!("{}?restart_guard=off", redis.url())).await.unwrap();
            let console = Console::new(&registry).every(Duration::from_millis(200)).election("main", "indexer");
            let console = more(registry.clone(), console).await;
            let app = Router::new().nest("/ops/locks", console.router());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/ops/locks", listener.local_addr().unwrap());
            tokio::spawn(axum::serve(listener, app).into_future());
            url
        });
        for worker in 0..12 {
            runtime.spawn(work(registry.clone(), worker));
        }
        runtime.spawn(lead(registry.clone()));
        runtime.spawn(lose(registry.clone()));
        Self { registry, redis, url, runtime: Some(runtime) }
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.as_ref().unwrap().block_on(future)
    }

    /// A lock that stays held.
    pub(crate) fn hold(&self, key: Key, name: &str) {
        let lock = self.registry.lock(key).backend("main").name(name).ttl(Duration::from_secs(3600));
        std::mem::forget(self.block_on(lock.acquire()).unwrap());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn stock(registry: &Registry, item: u64) -> Lock {
    registry.lock(Key::text("stock:").value(&item)).backend("main").name("shop::deduct")
}

async fn work(registry: Registry, worker: u64) {
    for round in 0.. {
        let lock = stock(&registry, (worker * 7 + round) % 5).wait(Wait::UpTo(Duration::from_millis(900)));
        if let Ok(guard) = lock.acquire().await {
            tokio::time::sleep(Duration::from_millis(40 + 30 * (worker + round) % 400)).await;
            let _ = guard.release().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn lead(registry: Registry) {
    let election = registry.elect("indexer").backend("main").candidate("node-3");
    let Ok(leadership) = election.campaign().await else { return };
    std::future::pending::<()>().await;
    drop(leadership);
}

/// An operator ends a hold every second.
async fn lose(registry: Registry) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let report = || registry.lock("report:daily").backend("main").name("shop::report").ttl(Duration::from_secs(1));
        let Ok(guard) = report().acquire().await else { continue };
        if let Some(id) = report().holders().await.ok().and_then(|state| state.holders.first()?.id) {
            let _ = report().break_hold(id).by("alice").because("a test").await;
        }
        drop(guard.release().await);
    }
}
