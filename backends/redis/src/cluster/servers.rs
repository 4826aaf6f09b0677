//! The servers of a cluster, and which of them has which slot. All runtimes share this.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{RedisError, ServerError, ServerErrorKind, Value};
use dlock_contract::{Error, Result};
use dlock_store::{Clock, background};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::cluster::nodes::{Node, NodeEvent, Nodes};
use crate::cluster::plan::ClusterPlan;
use crate::layout::slots::{SLOTS, Slot, number_of};
use crate::quarantine::view::{Range, ranges};
use crate::reply::fault;
use crate::scripts::call::words;
use crate::socket::options::OPEN_LIMIT;

/// The shortest time between two looks for the slots. A server that is down fails each request, and each failure is a
/// reason to look.
const LOOK_PAUSE: Duration = Duration::from_millis(250);

/// A look asks this many of the connected servers at once. If none of them answers, it asks all.
const ASKED_AT_ONCE: usize = 3;

/// The servers of one cluster.
pub(crate) struct Servers {
    plan: Arc<ClusterPlan>,
    pub(crate) nodes: Nodes,
    clock: Clock,
    /// The server of each slot; empty before the first look.
    slots: Mutex<Vec<Option<Arc<Node>>>>,
    /// Held while a caller waits for a look, so that only one look runs.
    looking: tokio::sync::Mutex<()>,
    /// The earliest time of the next look after a failure, in nanoseconds.
    next_look: AtomicU64,
}

impl Servers {
    /// Opens nothing yet. `ended` is called when a connection has ended.
    pub(crate) fn new(plan: &Arc<ClusterPlan>, clock: &Clock, ended: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new_cyclic(|servers: &Weak<Self>| {
            let servers = servers.clone();
            let listener = move |event| {
                if matches!(event, NodeEvent::Ended) {
                    ended();
                }
                if !matches!(event, NodeEvent::Push(_))
                    && let Some(servers) = servers.upgrade()
                {
                    servers.look_soon();
                }
            };
            Self {
                plan: plan.clone(),
                nodes: Nodes::new(plan.clone(), clock.clone(), listener),
                clock: clock.clone(),
                slots: Mutex::default(),
                looking: tokio::sync::Mutex::default(),
                next_look: AtomicU64::new(0),
            }
        })
    }

    /// Further connections to the same servers.
    pub(crate) fn beside(self: &Arc<Self>, hears: impl Fn(NodeEvent) + Send + Sync + 'static) -> Nodes {
        Nodes::new(self.plan.clone(), self.clock.clone(), hears)
    }

    /// Finds the servers, if that was not done yet.
    ///
    /// # Errors
    /// If no server that the URL names lists the slots.
    pub(crate) async fn find(self: &Arc<Self>) -> Result<()> {
        if !self.slots().is_empty() {
            return Ok(());
        }
        let servers = self.clone();
        // The look goes on if this caller gives up.
        background()?
            .run(async move {
                let _turn = servers.looking.lock().await;
                if !servers.slots().is_empty() {
                    return Ok(());
                }
                let limit = servers.clock.now().after(OPEN_LIMIT);
                let none = || {
                    Err(Error::outage(format!("no server of the {:?} answered within {OPEN_LIMIT:?}", servers.plan)))
                };
                servers.clock.timeout_at(limit, servers.look()).await.unwrap_or_else(none)
            })
            .await?
    }

    /// Looks for the slots on dlock's own thread, after a sign that one of them may have another server.
    pub(crate) fn look_soon(self: &Arc<Self>) {
        // An opening may fail after the end.
        if self.nodes.is_closed() {
            return;
        }
        let (now, next) = (self.clock.now(), self.next_look.load(Ordering::Relaxed));
        let after = now.after(LOOK_PAUSE).as_nanos();
        if now.as_nanos() < next
            || self.next_look.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let servers = self.clone();
        if let Ok(thread) = background() {
            thread.spawn(async move {
                // If it fails, the next failed request leads to another look.
                let _ = servers.look().await;
            });
        }
    }

    async fn look(&self) -> Result<()> {
        let mut connected = self.nodes.connected();
        fastrand::shuffle(&mut connected);
        connected.truncate(ASKED_AT_ONCE);
        if self.look_at(connected).await.is_ok() {
            return Ok(());
        }
        let all = self.primaries().into_iter().map(|(node, _)| node);
        self.look_at(all.chain(self.plan.hosts().map(|at| self.nodes.at(at)))).await
    }

    /// Asks these servers at once, and believes the first list.
    async fn look_at(&self, asked: impl IntoIterator<Item = Arc<Node>>) -> Result<()> {
        let ask = async |node: Arc<Node>| {
            let question = words(&["CLUSTER", "SLOTS"]);
            let request =
                |mut client: MultiplexedConnection| async move { client.send_packed_command(&question).await };
            match self.nodes.send(&node, request).await? {
                Value::Array(slots) => {
                    let ranges = ranges(&slots).ok_or_else(|| fault::unexpected(&Value::Nil))?;
                    Ok((node, ranges))
                }
                other => Err(fault::unexpected(&other)),
            }
        };
        let mut answers: FuturesUnordered<_> = asked.into_iter().map(ask).collect();
        let mut failure = Error::outage("no server of the cluster that the URL names can be reached");
        while let Some(answer) = answers.next().await {
            match answer {
                Ok((node, ranges)) => {
                    self.share_out(&node, ranges);
                    return Ok(());
                }
                // A wrong password helps the user more than the silence of another server.
                Err(error) if failure.is_retryable() => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Notes which server has which slots, by this server's answer.
    fn share_out(&self, asked: &Node, ranges: Vec<Range>) {
        let mut found = vec![None; SLOTS];
        for Range { slots: (first, last), address: (host, port), .. } in ranges {
            let server = match &*host {
                // The server does not know the address.
                "?" => continue,
                "" => (asked.at.0.clone(), port),
                _ => (host, port),
            };
            if let Some(slots) = found.get_mut(usize::from(first)..=usize::from(last)) {
                slots.fill(Some(self.nodes.at(&server)));
            }
        }
        let mut slots = self.slots();
        // The look began before the end.
        if self.nodes.is_closed() {
            return;
        }
        let before = std::mem::take(&mut *slots);
        // A slot that nobody serves just now keeps its server, which says so.
        for (slot, before) in found.iter_mut().zip(before) {
            *slot = slot.take().or(before);
        }
        *slots = found;
        drop(slots);
        let needed = self.primaries();
        self.nodes.keep(|node| needed.iter().any(|(other, _)| other.at == node.at));
    }

    /// The server of a slot. For a slot without one it is any server, which says what is wrong.
    ///
    /// # Errors
    /// If no server is known.
    pub(crate) fn of(&self, slot: Option<Slot>) -> Result<Arc<Node>> {
        let slots = self.slots();
        let own = slot.and_then(|slot| slots.get(usize::from(number_of(slot)))?.clone());
        let any = || slots.iter().flatten().next().cloned();
        own.or_else(any).ok_or_else(|| Error::outage("no server of the cluster is known"))
    }

    /// Each server that has slots, with one of them.
    pub(crate) fn primaries(&self) -> Vec<(Arc<Node>, u16)> {
        let mut found: Vec<(Arc<Node>, u16)> = Vec::new();
        for (number, node) in (0..).zip(self.slots().iter()) {
            // Neighbours mostly have one server.
            if let Some(node) = node
                && !found.iter().rev().any(|(other, _)| Arc::ptr_eq(other, node))
            {
                found.push((node.clone(), number));
            }
        }
        found
    }

    /// Follows a redirection of the server `asked`: the server that it names.
    pub(crate) fn redirected(&self, asked: &Node, error: &ServerError) -> Option<Arc<Node>> {
        let error = RedisError::from(error.clone());
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.at.0 } else { host };
        Some(self.nodes.at(&(host.to_owned(), port.parse().ok()?)))
    }

    /// Notes what an answer about this slot says of its server.
    pub(crate) fn heard(self: &Arc<Self>, slot: Option<Slot>, asked: &Node, error: &ServerError) {
        use ServerErrorKind::{ClusterDown, MasterDown, Moved, ReadOnly};
        if let (Some(Moved), Some(slot)) = (error.kind(), slot)
            && let Some(node) = self.redirected(asked, error)
            && let Some(place) = self.slots().get_mut(usize::from(number_of(slot)))
        {
            *place = Some(node);
        }
        if matches!(error.kind(), Some(Moved | ReadOnly | ClusterDown | MasterDown)) {
            self.look_soon();
        }
    }

    /// Subscribes to a channel at the server of this slot, over connections that are kept for pushes.
    ///
    /// # Errors
    /// If the server refuses, or cannot be reached.
    pub(crate) async fn subscribe(self: &Arc<Self>, over: &Nodes, slot: Slot, channel: &str) -> Result<()> {
        // Once more, where the first server names another one.
        for is_last in [false, true] {
            let node = over.at(&self.of(Some(slot))?.at);
            let question = words(&["SSUBSCRIBE", channel]);
            let request =
                |mut client: MultiplexedConnection| async move { client.send_packed_command(&question).await };
            match over.send(&node, request).await? {
                Value::ServerError(error) => {
                    self.heard(Some(slot), &node, &error);
                    if is_last || error.kind() != Some(ServerErrorKind::Moved) {
                        return Err(fault::server(&error));
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Ends all connections.
    pub(crate) fn close(&self) {
        // First, so that no look brings the slots back.
        self.nodes.close();
        let before = std::mem::take(&mut *self.slots());
        drop(before);
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<Arc<Node>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
