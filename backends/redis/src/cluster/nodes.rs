//! The connections to the servers of a cluster: one to each, opened when a request needs it.
//!
//! The client library has a client for a whole cluster. Whenever it looks for the slots anew, all its requests wait until it
//! has tried all servers. So a server that is silent would delay the requests to all others, and short leases there would
//! end. Here a request waits for its own server alone.
//!
//! The connections live on dlock's own thread and are opened there, because a caller may have less time than an opening
//! takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::aio::{MultiplexedConnection, SendError};
use ::redis::{PushInfo, PushKind, RedisResult};
use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{Clock, background};
use futures::FutureExt;
use futures::future::Shared;
use tokio::sync::oneshot;

use crate::cluster::plan::{At, ClusterPlan};
use crate::socket::first_step::first_step;
use crate::socket::options::config;
use crate::socket::server::Wire;

/// A server that does not answer for this long counts as dead: its connection is ended, and the servers are asked for the
/// slots. The opening of a connection has the same limit.
const SILENCE_LIMIT: Duration = Duration::from_millis(1500);

/// An event at one of the connections.
pub(crate) enum NodeEvent {
    Push(PushInfo),
    /// The connection has ended, or its server is silent.
    Ended,
    /// No connection could be opened.
    Unreachable,
}

type Listener = Arc<dyn Fn(NodeEvent) + Send + Sync>;

/// The connections to the servers of one cluster.
pub(crate) struct Nodes {
    plan: Arc<ClusterPlan>,
    clock: Clock,
    listener: Listener,
    /// `None` after the end.
    known: Mutex<Option<HashMap<At, Arc<Node>>>>,
}

/// One server.
pub(crate) struct Node {
    pub(crate) at: At,
    link: Mutex<Option<Opening>>,
}

/// A connection that is being opened, that is open, or that could not be opened.
type Opening = Shared<oneshot::Receiver<Result<Link, Arc<Error>>>>;

/// A connection to a server.
#[derive(Clone)]
struct Link {
    wire: Wire,
    dead: Arc<AtomicBool>,
}

impl Nodes {
    pub(crate) fn new(
        plan: Arc<ClusterPlan>,
        clock: Clock,
        listener: impl Fn(NodeEvent) + Send + Sync + 'static,
    ) -> Self {
        Self { plan, clock, listener: Arc::new(listener), known: Mutex::new(Some(HashMap::new())) }
    }

    /// The server at this address.
    pub(crate) fn at(&self, at: &At) -> Arc<Node> {
        let new = || Arc::new(Node { at: at.clone(), link: Mutex::default() });
        match &mut *lock(&self.known) {
            Some(known) => known.entry(at.clone()).or_insert_with(new).clone(),
            // The connection of a request that comes after the end lasts no longer than the request.
            None => new(),
        }
    }

    /// The servers to which a connection is open.
    pub(crate) fn connected(&self) -> Vec<Arc<Node>> {
        let known = lock(&self.known);
        known.iter().flat_map(HashMap::values).filter(|node| node.is_connected()).cloned().collect()
    }

    /// Ends the connections to all servers but these.
    pub(crate) fn keep(&self, is_needed: impl Fn(&Arc<Node>) -> bool) {
        let left: Vec<_> = match &mut *lock(&self.known) {
            Some(known) => known.extract_if(|_, node| !is_needed(node)).collect(),
            None => Vec::new(),
        };
        // Outside of the lock: its own drop may do anything.
        drop(left);
    }

    /// Ends all connections, also those that are being opened.
    pub(crate) fn close(&self) {
        let before = lock(&self.known).take();
        drop(before);
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.known).is_none()
    }

    /// Sends a request to a server, and opens a connection if there is none. A task waits for the answer or for the time
    /// limit, even if the caller gives up earlier, as renewals of short leases do. Otherwise nobody would notice that the
    /// server is silent.
    pub(crate) async fn send<T: Send + 'static, F: Future<Output = RedisResult<T>> + Send + 'static>(
        &self,
        node: &Node,
        request: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T> {
        // A caller that gives up during the opening has sent nothing. So its abandon cannot overtake its request.
        let Link { wire, dead } = self.link(node).await?;
        let (sender, receiver) = oneshot::channel();
        let (sent, clock, listener) = (request(wire.client.clone()), self.clock.clone(), self.listener.clone());
        let reading = async move {
            let answer = match clock.timeout_at(clock.now().after(SILENCE_LIMIT), sent).await {
                Some(answer) => answer.map_err(|error| wire.fault(&error)),
                None => Err(Error::outage("a server of the cluster did not answer in time")),
            };
            if answer.is_err() && !dead.swap(true, Ordering::Relaxed) {
                listener(NodeEvent::Ended);
            }
            // The caller may have given up its request.
            let _ = sender.send(answer);
        };
        // A child after `fork` sends nothing.
        let background = background()?;
        first_step(reading, |rest| background.spawn(rest));
        receiver.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn link(&self, node: &Node) -> Result<Link> {
        let opening = {
            let mut link = lock(&node.link);
            match &*link {
                Some(present) if present.peek().is_none_or(is_alive) => present.clone(),
                _ => link.insert(self.open(&node.at)?).clone(),
            }
        };
        opening.await.map_err(|_| gone())?.map_err(|error| error.again())
    }

    fn open(&self, at: &At) -> Result<Opening> {
        let server = self.plan.server(at)?;
        let (sender, receiver) = oneshot::channel();
        let (clock, listener, dead) = (self.clock.clone(), self.listener.clone(), Arc::<AtomicBool>::default());
        let (hears, died, place) = (self.listener.clone(), dead.clone(), format!("{}:{}", at.0, at.1));
        let config = config().set_push_sender(move |push: PushInfo| {
            match push.kind {
                PushKind::Disconnection if died.swap(true, Ordering::Relaxed) => {}
                PushKind::Disconnection => hears(NodeEvent::Ended),
                _ => hears(NodeEvent::Push(push)),
            }
            Ok::<(), SendError>(())
        });
        background()?.spawn(async move {
            let limit = clock.now().after(SILENCE_LIMIT);
            let opened = clock.timeout_at(limit, server.open(config)).await.unwrap_or_else(|| {
                Err(Error::outage(format!(
                    "the server of the cluster at {place} did not answer within {SILENCE_LIMIT:?}"
                )))
            });
            if opened.is_err() {
                listener(NodeEvent::Unreachable);
            }
            // Nobody may wait for it any more.
            let _ = sender.send(opened.map(|wire| Link { wire, dead }).map_err(Arc::new));
        });
        Ok(receiver.shared())
    }
}

impl Node {
    /// Its address, as reports show it.
    pub(crate) fn shown(&self) -> String {
        format!("{}:{}", self.at.0, self.at.1)
    }

    pub(crate) fn is_connected(&self) -> bool {
        lock(&self.link).as_ref().and_then(Shared::peek).is_some_and(is_alive)
    }
}

fn is_alive(opened: &Result<Result<Link, Arc<Error>>, oneshot::error::RecvError>) -> bool {
    matches!(opened, Ok(Ok(link)) if !link.dead.load(Ordering::Relaxed))
}

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "dlock's own thread has dropped a request")
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}
