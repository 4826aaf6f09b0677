//! The connection on which the server pushes grants: one for each store, on our own thread, opened when somebody has
//! to wait for the first time.
//!
//! In a cluster the server of a slot pushes only to those who have subscribed there: a process subscribes to a channel in
//! each slot in which it waits for a lock.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::connection::{Connections, config, on};
use super::fault;
use super::grant::{Message, Stray};
use super::line::Places;
use super::scripts::SCRIPTS;
use super::scripts_shares;
use super::topology::ClusterPlan;
use super::topology::slots::{Slot, channel, slot_of};
use crate::error::{Error, Result};
use crate::key::LockKey;

/// So long an attempt waits for the connection to open.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the pushes of one store share.
pub(super) struct Pushes {
    connections: Arc<Connections>,
    places: Arc<Places>,
    /// The name of this process in lines: random, new for each opened store.
    pub(super) process: Arc<str>,
    /// Ends the task when it is dropped.
    running: Mutex<Option<oneshot::Sender<()>>>,
    state: Arc<watch::Sender<State>>,
    slots: Arc<Mutex<Slots>>,
}

/// Of a cluster: the client on which pushes arrive, and the slots from which they do.
#[derive(Default)]
struct Slots {
    client: Option<ClusterConnection>,
    subscribed: HashSet<Slot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    Up,
    Down,
}

/// What the callback has seen and somebody must act upon.
enum Event {
    /// A lock was granted for which nobody waits.
    Stray(Stray),
    Disconnected,
    /// The slot of this channel has moved.
    Moved(Vec<u8>),
}

impl Pushes {
    pub(super) fn new(connections: Arc<Connections>, places: Arc<Places>, process: Arc<str>) -> Self {
        let state = Arc::new(watch::Sender::new(State::Opening));
        Self { connections, places, process, running: Mutex::new(None), state, slots: Arc::default() }
    }

    /// Do pushes about this lock arrive?
    pub(super) fn is_up(&self, key: &LockKey) -> bool {
        *self.state.borrow() == State::Up
            && (self.connections.cluster().is_none() || lock(&self.slots).subscribed.contains(&slot_of(key)))
    }

    /// Lets pushes about this lock arrive; false if they cannot at present, and then waiting means polling.
    pub(super) async fn come_up(&self, key: &LockKey) -> bool {
        if self.start().is_err() {
            return false;
        }
        let mut state = self.state.subscribe();
        let opened =
            async { state.wait_for(|state| *state != State::Opening).await.is_ok_and(|state| *state == State::Up) };
        // Who asks has a deadline of its own; polling meanwhile is better than waiting for this.
        let limit = self.connections.clock.now().after(PATIENCE);
        let clock = &self.connections.clock;
        if !clock.timeout_at(limit, opened).await.unwrap_or(false) {
            return false;
        }
        self.connections.cluster().is_none() || clock.timeout_at(limit, self.subscribe(key)).await.unwrap_or(false)
    }

    /// Subscribes in the lock's slot.
    async fn subscribe(&self, key: &LockKey) -> bool {
        let slot = slot_of(key);
        let client = lock(&self.slots).client.clone();
        let Some(mut client) = client else { return false };
        if let Err(error) = client.ssubscribe(channel(&self.process, slot)).await {
            tracing::warn!(error = %fault::client(&error), "Redis pushes nothing about this slot, so waiting means polling");
            return false;
        }
        let mut slots = lock(&self.slots);
        if slots.client.is_some() {
            slots.subscribed.insert(slot);
        }
        slots.client.is_some()
    }

    /// Ends the connection. The next waiter opens it again.
    pub(super) fn stop(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn start(&self) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return Ok(());
        }
        let thread = crate::background::background()?;
        let (end, ended) = oneshot::channel();
        self.state.send_replace(State::Opening);
        let listener = Listener {
            connections: self.connections.clone(),
            places: self.places.clone(),
            channel: format!("dl1:p:{}", self.process),
            process: self.process.clone(),
            state: self.state.clone(),
            slots: self.slots.clone(),
        };
        thread.spawn(async move {
            tokio::select! {
                () = listener.listen() => {}
                _ = ended => {}
            }
            listener.state.send_replace(State::Down);
            *lock(&listener.slots) = Slots::default();
        });
        *running = Some(end);
        Ok(())
    }
}

/// The task that keeps the connection open.
struct Listener {
    connections: Arc<Connections>,
    places: Arc<Places>,
    channel: String,
    process: Arc<str>,
    state: Arc<watch::Sender<State>>,
    slots: Arc<Mutex<Slots>>,
}

impl Listener {
    async fn listen(&self) {
        if let Some(plan) = self.connections.cluster() {
            return self.listen_to_cluster(plan).await;
        }
        let mut pause = Duration::ZERO;
        loop {
            let switches = self.connections.switches();
            match self.open().await {
                Ok((_open, mut events)) => {
                    pause = Duration::ZERO;
                    // Whatever was pushed while nobody listened is lost: everybody asks.
                    self.places.wake_all();
                    self.state.send_replace(State::Up);
                    let strays = async {
                        while let Some(Event::Stray(stray)) = events.recv().await {
                            self.give_back(stray);
                        }
                    };
                    tokio::select! {
                        () = strays => {}
                        () = self.connections.switched(switches) => {}
                    }
                }
                Err(error) if pause.is_zero() => {
                    tracing::warn!(%error, "Redis pushes nothing to this process, so waiting means polling");
                }
                Err(_) => {}
            }
            self.state.send_replace(State::Down);
            if !pause.is_zero() {
                self.connections.clock.sleep_until(self.connections.clock.now().after(pause)).await;
            }
            pause = (pause * 2).clamp(Duration::from_millis(50), Duration::from_secs(2));
        }
    }

    /// The client repairs its connections and its subscriptions by itself; what it may have missed meanwhile is asked for.
    async fn listen_to_cluster(&self, plan: &ClusterPlan) {
        let mut pause = Duration::from_millis(50);
        loop {
            let (sender, mut events) = mpsc::unbounded_channel();
            let places = self.places.clone();
            let pushes = move |push: PushInfo| {
                receive(&places, &sender, push);
                Ok::<(), ::redis::aio::SendError>(())
            };
            match self.connections.dial_cluster(plan, pushes).await {
                Ok(client) => {
                    *lock(&self.slots) = Slots { client: Some(client), subscribed: HashSet::new() };
                    self.state.send_replace(State::Up);
                    while let Some(event) = events.recv().await {
                        match event {
                            Event::Stray(stray) => self.give_back(stray),
                            Event::Moved(name) => {
                                lock(&self.slots)
                                    .subscribed
                                    .retain(|slot| channel(&self.process, *slot).as_bytes() != name);
                                self.places.wake_all();
                            }
                            // Whoever asks next subscribes again.
                            Event::Disconnected => {
                                lock(&self.slots).subscribed.clear();
                                self.places.wake_all();
                            }
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the cluster pushes nothing to this process, so waiting means polling")
                }
            }
            self.state.send_replace(State::Down);
            *lock(&self.slots) = Slots::default();
            self.connections.clock.sleep_until(self.connections.clock.now().after(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    async fn open(&self) -> Result<(MultiplexedConnection, mpsc::UnboundedReceiver<Event>)> {
        let (sender, events) = mpsc::unbounded_channel();
        let places = self.places.clone();
        let sender_of = move |push: PushInfo| {
            receive(&places, &sender, push);
            Ok::<(), ::redis::aio::SendError>(())
        };
        let mut connection = self.connections.dial(config().set_push_sender(sender_of)).await?;
        let limit = self.connections.clock.now().after(super::connection::OPEN_LIMIT);
        let subscribed = self.connections.clock.timeout_at(limit, connection.subscribe(&self.channel)).await;
        match subscribed {
            Some(Ok(())) => Ok((connection, events)),
            Some(Err(error)) => Err(fault::client(&error)),
            None => Err(Error::outage("Redis did not confirm the subscription")),
        }
    }

    /// Releases what was granted to nobody: a claim that was given up while its request was under way.
    fn give_back(&self, stray: Stray) {
        let connections = self.connections.clone();
        let release = async move {
            let Ok(shared) = connections.here().await else { return };
            let Stray { name, value, marker } = stray;
            // If it fails the grant ends by itself, soon.
            let _ = match marker {
                None => {
                    let build = |command: &mut Cmd| {
                        on(command, &name).arg(&value);
                    };
                    connections.script(&shared, &SCRIPTS.release, build).await
                }
                Some(marker) => {
                    let build = |command: &mut Cmd| {
                        on(command, &name).arg(&marker).arg(value.get(..32)).arg(0).arg("");
                    };
                    connections.script(&shared, &scripts_shares::SCRIPTS.end, build).await
                }
            };
        };
        if let Ok(thread) = crate::background::background() {
            thread.spawn(release);
        }
    }
}

fn lock(slots: &Mutex<Slots>) -> std::sync::MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs inside the client's driver: it only moves values.
fn receive(places: &Places, events: &mpsc::UnboundedSender<Event>, push: PushInfo) {
    let event = match (push.kind, &push.data[..]) {
        (PushKind::Disconnection, _) => Event::Disconnected,
        (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => Event::Moved(channel.clone()),
        (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(text)]) => {
            let (grant, stray) = match Message::parse(text) {
                Some(Message::Granted(grant, stray)) => (grant, stray),
                Some(Message::Ask(owner)) => return places.wake(&owner),
                None => return,
            };
            if places.deliver(grant) {
                return;
            }
            Event::Stray(stray)
        }
        _ => return,
    };
    // Nobody receives any more: the store was closed.
    let _ = events.send(event);
}
