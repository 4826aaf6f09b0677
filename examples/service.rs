//! A web service to start from: settings, locked handlers, probes, metrics, the live page of all locks, and a shutdown with one
//! deadline.
//!
//! `cargo run --example service`, then `curl -X POST localhost:8080/stock/7/sell`, and `localhost:8080/locks` in a browser
//!
//! | setting | meaning | default |
//! | --- | --- | --- |
//! | `DLOCK_URL_MAIN` | the store, such as `redis://cache/` | `memory://`, which other processes do not see |
//! | `DLOCK_NAMESPACE`, `DLOCK_TTL`, `DLOCK_WAIT` | the defaults of all locks | those of dlock |
//! | `DLOCK_TUNE_FILE`, `DLOCK_TUNE` | options of single functions, such as `service::sell wait=1s` | – |
//! | `LISTEN` | the address of the server | `127.0.0.1:8080` |
//! | `RUST_LOG` | what is logged, such as `info,dlock=debug` | `info` |
//!
//! `tests/service.rs` tests it: with a lock that is held, with a stuck handler at the shutdown, and with two processes on one
//! Redis.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, serve};
use dlock::distributed_lock;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval, sleep, timeout_at};

/// The orchestrator kills after 30 s.
const SHUTDOWN: Duration = Duration::from_secs(20);
/// The bodies that run get this part of it. The rest is for the answers to go out.
const BODIES: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).init();
    let metrics = count()?;
    connect().await?;
    let listener = TcpListener::bind(std::env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:8080")).await?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    let left = run(listener, router(Shop::default(), metrics), stop_signal(), SHUTDOWN, BODIES).await?;
    tracing::info!(left, "stopped; this many locks end with their ttl");
    Ok(())
}

/// All routes of the service.
pub(crate) fn router(shop: Shop, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/stock/{id}", get(count_left))
        .route("/stock/{id}/sell", post(sell))
        .route("/stock/{id}/recount/{seconds}", post(recount))
        .with_state(shop)
        .nest("/locks", locks())
        .route("/live", get(|| async { "alive" }))
        .route("/ready", get(ready))
        .route("/metrics", get(async move || metrics.render()))
}

/// The live page of all locks, read-only, for requests from this host alone. Put it behind your own authentication instead,
/// above all if a proxy on this host passes requests on.
fn locks() -> Router {
    let page = dlock_console::router(dlock::Registry::global());
    page.layer(from_fn(async |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request, next: Next| {
        if peer.ip().is_loopback() { next.run(request).await } else { StatusCode::NOT_FOUND.into_response() }
    }))
}

/// The stock. In your service it is in a database, which all processes use.
#[derive(Clone, Default)]
pub(crate) struct Shop(Arc<Mutex<HashMap<u64, u32>>>);

impl Shop {
    pub(crate) fn left(&self, id: u64) -> u32 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(100)
    }

    fn set(&self, id: u64, left: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, left);
    }
}

async fn count_left(State(shop): State<Shop>, Path(id): Path<u64>) -> String {
    shop.left(id).to_string()
}

/// A lock's error is an answer by itself: 423 Locked with `Retry-After` while another caller is at it, 503 in an outage.
#[distributed_lock(key = "stock:<id>", name = "service::sell", wait = "2s", backend = "main")]
async fn sell(State(shop): State<Shop>, Path(id): Path<u64>) -> Result<String, SaleError> {
    let left = shop.left(id).checked_sub(1).ok_or(SaleError::SoldOut)?;
    shop.set(id, left);
    Ok(left.to_string())
}

/// Somebody goes to the shelf, and that may take long. At a shutdown this body is cancelled when its time is over.
#[distributed_lock(key = "stock:<id>", name = "service::recount", wait = "none", backend = "main")]
async fn recount(State(shop): State<Shop>, Path((id, seconds)): Path<(u64, u64)>) -> Result<String, dlock::Error> {
    sleep(Duration::from_secs(seconds)).await;
    Ok(shop.left(id).to_string())
}

/// The error of the service's own, which carries those of locks.
#[derive(Debug, thiserror::Error)]
enum SaleError {
    #[error("sold out")]
    SoldOut,
    #[error(transparent)]
    Lock(#[from] dlock::Error),
}

impl IntoResponse for SaleError {
    fn into_response(self) -> Response {
        match self {
            Self::SoldOut => (StatusCode::CONFLICT, "sold out").into_response(),
            Self::Lock(error) => error.into_response(),
        }
    }
}

/// Ready as long as the store takes locks. During a shutdown it is not, so that no new requests come.
async fn ready() -> Result<String, dlock::Error> {
    dlock::ready("main").await.map(|health| health.to_string())
}

/// Opens the stores that the environment names, and checks that they can do what the attributes ask.
async fn connect() -> Result<(), Box<dyn Error>> {
    if dlock::connect_from_env().await?.is_empty() {
        tracing::warn!("DLOCK_URL_MAIN is not set: these locks exclude nobody in other processes");
        dlock::connect("main", "memory://").await?;
    }
    dlock::verify()?;
    Ok(())
}

/// Counts all locks, for `/metrics`. Before the first store, because a metric counts from here on.
pub(crate) fn count() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_lease_left_ratio".into()), &dlock::metrics::SHARES)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &dlock::metrics::SECONDS)?
        .install_recorder()?;
    dlock::observe(dlock::metrics::Metrics::new());
    let upkeep = handle.clone();
    tokio::spawn(async move {
        let mut every = interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Serves until the signal, and then ends within `all`, of which the bodies of locks get `bodies`. Gives the number of locks
/// that are left to their ttl.
pub(crate) async fn run(
    listener: TcpListener,
    app: Router,
    signal: impl Future<Output = ()>,
    all: Duration,
    bodies: Duration,
) -> Result<usize, Box<dyn Error>> {
    let (stop, stopped) = oneshot::channel::<()>();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        () = signal => {}
        ended = &mut server => return Err(ended?.err().map_or("the server has ended".into(), Into::into)),
    }
    let deadline = Instant::now() + all;
    // No new connections. The server waits for its handlers, and one of them may be stuck: so it is not awaited here.
    let _ = stop.send(());
    // Handlers that still wait or work are cancelled at the end of this, and their locks are released.
    let report = dlock::shutdown(bodies).await;
    // Their answers go out.
    let _ = timeout_at(deadline, &mut server).await;
    Ok(report.left_to_ttl)
}

/// Ctrl-C, or the orchestrator's `SIGTERM`.
async fn stop_signal() {
    #[cfg(unix)]
    if let Ok(mut term) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = term.recv() => {}
            _ = signal::ctrl_c() => {}
        }
        return;
    }
    let _ = signal::ctrl_c().await;
}
