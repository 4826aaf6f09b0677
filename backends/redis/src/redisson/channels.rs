//! Listens for releases: one connection for each store, on our own thread, subscribes to a lock's channel while a
//! caller of this process waits for the lock.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::aio::{MultiplexedConnection, SendError};
use ::redis::{PushInfo, PushKind, RedisResult, Value};
use dlock_contract::{BootInstant, Error, Owner, Result};
use dlock_store::{Seldom, background, line};
use tokio::sync::{mpsc, oneshot, watch};

use crate::connections::pool::Connections;
use crate::push::pushes::open_wait;
use crate::reply::fault;
use crate::socket::options::{OPEN_LIMIT, config};

/// The pause before a server that has closed the connection is asked again.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// All channels of one store.
pub(crate) struct Channels {
    connections: Arc<Connections>,
    table: Arc<Table>,
    /// The task's orders. The task ends when this is dropped.
    running: Mutex<Option<Running>>,
}

struct Running {
    orders: mpsc::UnboundedSender<Order>,
    _end: oneshot::Sender<()>,
}

/// An order to the task about a channel.
#[derive(Debug)]
enum Order {
    Subscribe(String),
    Unsubscribe(String),
}

#[derive(Default)]
struct Table {
    channels: Mutex<HashMap<String, Channel>>,
    /// Whether the connection has ended or could not be opened. Then new waiters need not wait for it.
    is_down: AtomicBool,
}

struct Channel {
    waiters: HashSet<Owner>,
    state: watch::Sender<ChannelState>,
}

/// The state of a channel.
#[derive(Clone, Copy, Debug)]
struct ChannelState {
    /// Whether releases are heard at present; unknown until the server has answered.
    is_up: Option<bool>,
    /// How often there was a notification, or one may have been missed.
    news: u64,
}

impl Channels {
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self { connections, table: Arc::default(), running: Mutex::new(None) }
    }

    /// Whether this waiter listens already.
    pub(crate) fn has(&self, channel: &str, owner: &Owner) -> bool {
        self.table.lock().get(channel).is_some_and(|entry| entry.waiters.contains(owner))
    }

    /// Listens to a channel for a waiter, until it is [dismissed](Self::dismiss); `None` if nothing is heard at
    /// present. The caller waits until `until`.
    pub(crate) async fn listen(&self, channel: &str, owner: Owner, until: BootInstant) -> Result<Option<Ear>> {
        let mut state = self.join(channel, owner)?;
        let known = async { state.wait_for(|state| state.is_up.is_some()).await.map(|state| *state).ok() };
        let clock = &self.connections.clock;
        let limit = clock.now().after(open_wait(clock.now(), until));
        let known = clock.timeout_at(limit, known).await.flatten();
        Ok(known.filter(|known| known.is_up == Some(true)).map(|known| Ear { state, seen: known.news }))
    }

    fn join(&self, channel: &str, owner: Owner) -> Result<watch::Receiver<ChannelState>> {
        let orders = self.start()?;
        let mut table = self.table.lock();
        let entry = table.entry(channel.to_owned()).or_insert_with(|| {
            // Under the lock, so that the orders about a channel keep their order. If the task has ended, it stays
            // down.
            let _ = orders.send(Order::Subscribe(channel.to_owned()));
            let is_up = self.table.is_down.load(Ordering::Relaxed).then_some(false);
            Channel { waiters: HashSet::new(), state: watch::Sender::new(ChannelState { is_up, news: 0 }) }
        });
        entry.waiters.insert(owner);
        Ok(entry.state.subscribe())
    }

    /// Ends the subscription, if no other caller of this process waits for the lock.
    pub(crate) fn dismiss(&self, channel: &str, owner: &Owner) {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(channel) else { return };
        entry.waiters.remove(owner);
        if entry.waiters.is_empty() {
            table.remove(channel);
            if let Some(running) = &*self.running() {
                let _ = running.orders.send(Order::Unsubscribe(channel.to_owned()));
            }
        }
    }

    /// Ends the connection. The next waiter opens it again.
    pub(crate) fn stop(&self) {
        *self.running() = None;
    }

    fn start(&self) -> Result<mpsc::UnboundedSender<Order>> {
        let mut running = self.running();
        if let Some(running) = &*running {
            return Ok(running.orders.clone());
        }
        let thread = background()?;
        let (orders, incoming) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let listener = ChannelListener { connections: self.connections.clone(), table: self.table.clone() };
        thread.spawn(async move {
            tokio::select! {
                () = listener.listen(incoming) => {}
                _ = ended => {}
            }
            listener.table.went_down();
        });
        *running = Some(Running { orders: orders.clone(), _end: end });
        Ok(orders)
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears the releases that are published on one channel.
pub(crate) struct Ear {
    state: watch::Receiver<ChannelState>,
    seen: u64,
}

impl Ear {
    /// Ends with the next news since it began to listen.
    pub(crate) async fn news(mut self) {
        // An error: its waiter was dismissed.
        let _ = self.state.wait_for(|state| state.news != self.seen).await;
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, channel: &str, change: impl FnOnce(&mut ChannelState)) {
        if let Some(entry) = self.lock().get(channel) {
            entry.state.send_modify(change);
        }
    }

    /// Messages are lost from here on, so all waiters ask.
    fn went_down(&self) {
        let channels = self.lock();
        self.is_down.store(true, Ordering::Relaxed);
        for entry in channels.values() {
            entry.state.send_modify(|state| *state = ChannelState { is_up: Some(false), news: state.news + 1 });
        }
    }
}

/// The task that keeps the connection open.
struct ChannelListener {
    connections: Arc<Connections>,
    table: Arc<Table>,
}

impl ChannelListener {
    async fn listen(&self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut pause = RETRY_PAUSES.0;
        loop {
            match self.hear(&mut orders).await {
                Ok(()) => pause = RETRY_PAUSES.0,
                Err(error) if pause == RETRY_PAUSES.0 => {
                    let host = format!("{:?}", self.connections.target);
                    line(move || {
                        tracing::warn!(host, %error, "Redis does not notify this process of releases, so waiters poll");
                    });
                }
                Err(_) => {}
            }
            self.table.went_down();
            // The next connection takes the channels from the table. Without this, orders would pile up while none can be opened.
            while orders.try_recv().is_ok() {}
            self.connections.clock.sleep_until(self.connections.clock.now().after(pause)).await;
            pause = (pause * 2).min(RETRY_PAUSES.1);
        }
    }

    /// Opens a connection, and serves it until it ends.
    async fn hear(&self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Result<()> {
        let switches = self.connections.switches();
        let (hung_up, mut end) = mpsc::unbounded_channel();
        let table = self.table.clone();
        let pushes = move |push: PushInfo| {
            match (push.kind, &push.data[..]) {
                (PushKind::Message, [Value::BulkString(channel), _]) => {
                    table.change(&String::from_utf8_lossy(channel), |state| state.news += 1);
                }
                // Nobody receives any more: the task has ended.
                (PushKind::Disconnection, _) => drop(hung_up.send(())),
                _ => {}
            }
            Ok::<(), SendError>(())
        };
        let mut wire = self.connections.dial(config().set_push_sender(pushes)).await?;
        let known: Vec<String> = {
            let channels = self.table.lock();
            self.table.is_down.store(false, Ordering::Relaxed);
            channels.keys().cloned().collect()
        };
        for channel in known {
            self.subscribe(&mut wire.client, &channel).await?;
        }
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Subscribe(channel)) => self.subscribe(&mut wire.client, &channel).await?,
                    Some(Order::Unsubscribe(channel)) => {
                        allowed(self.bounded(wire.client.unsubscribe(&channel)).await)?;
                    }
                    None => return Ok(()),
                },
                _ = end.recv() => return Ok(()),
                () = self.connections.switched(switches) => return Ok(()),
            }
        }
    }

    async fn subscribe(&self, connection: &mut MultiplexedConnection, channel: &str) -> Result<()> {
        let heard = allowed(self.bounded(connection.subscribe(channel)).await)?;
        // Earlier messages are unknown.
        self.table.change(channel, |state| *state = ChannelState { is_up: Some(heard), news: state.news + 1 });
        Ok(())
    }

    async fn bounded(&self, request: impl Future<Output = RedisResult<()>>) -> Result<()> {
        let limit = self.connections.clock.now().after(OPEN_LIMIT);
        let answer = self.connections.clock.timeout_at(limit, request).await;
        let answer = answer.ok_or_else(|| Error::outage("Redis did not confirm a subscription"))?;
        answer.map_err(|error| fault::client(&error))
    }
}

/// Whether the order was done. If the account may not, the waiters of this channel poll and the other channels go on.
fn allowed(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) => {
            static TOLD: Seldom = Seldom::new();
            TOLD.line(error.to_string(), move || {
                tracing::warn!(%error, "Redis does not notify this process of releases of a lock, so its waiters poll");
            });
            Ok(false)
        }
    }
}
