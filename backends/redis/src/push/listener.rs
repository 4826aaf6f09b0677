//! The task that keeps the push connection open, and opens it again.
//!
//! It looks for silence itself: no caller's request goes over this connection, so nobody else would notice that nothing
//! comes any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::{Cmd, PushInfo, PushKind, Value};
use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::line;
use tokio::sync::{mpsc, watch};

use crate::cluster::nodes::NodeEvent;
use crate::cluster::servers::Servers;
use crate::connections::pool::Connections;
use crate::layout::slots::channel;
use crate::push::state::{Opened, PushState, Slots, lock};
use crate::queue::grant::{Message, Stray};
use crate::queue::places::Places;
use crate::scripts::call::{on, words};
use crate::scripts::exclusive::SCRIPTS;
use crate::scripts::shared::SHARED_SCRIPTS;
use crate::socket::options::{OPEN_LIMIT, config};
use crate::socket::server::Wire;

/// While a caller waits, the interval at which the server is asked whether it lives and is a primary, and the longest
/// time for its answer.
const PULSE_INTERVAL: Duration = Duration::from_secs(2);

/// The shortest pause before the next connection.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// A connection that has lasted this long was a good one: the next one is opened without delay.
const GOOD_CONNECTION_TIME: Duration = Duration::from_secs(10);

/// The values that the task needs.
pub(crate) struct Listener {
    pub(crate) connections: Arc<Connections>,
    pub(crate) places: Arc<Places>,
    pub(crate) channel: String,
    pub(crate) process: Arc<str>,
    pub(crate) state: Arc<watch::Sender<PushState>>,
    pub(crate) slots: Arc<Mutex<Slots>>,
    pub(crate) opened: Arc<Opened>,
}

impl Listener {
    pub(crate) async fn listen(&self) {
        if let Some(servers) = self.connections.cluster() {
            return self.listen_to_cluster(servers).await;
        }
        let mut pause = Duration::ZERO;
        loop {
            let switches = self.connections.switches();
            match self.open().await {
                Ok((wire, mut events)) => {
                    let since = self.connections.clock.now();
                    // Pushes that came while nobody listened are lost, so all waiters ask.
                    self.places.wake_all();
                    let unheard = self.come_up(self.opened.next());
                    let strays = async {
                        while let Some(Event::Stray(stray)) = events.recv().await {
                            self.give_back(stray);
                        }
                    };
                    tokio::select! {
                        () = strays => {}
                        () = self.connections.switched(switches) => {}
                        () = unheard => {}
                        () = self.until_silent(wire) => {}
                    }
                    if self.connections.clock.now().since(since) >= GOOD_CONNECTION_TIME {
                        pause = Duration::ZERO;
                    }
                }
                Err(error) if pause.is_zero() => {
                    let host = format!("{:?}", self.connections.target);
                    line(move || tracing::warn!(host, %error, "Redis pushes nothing to this process, so waiters poll"));
                }
                Err(_) => {}
            }
            self.state.send_replace(PushState::Down);
            if !pause.is_zero() {
                self.connections.clock.sleep_until(self.connections.clock.now().after(pause)).await;
            }
            pause = (pause * 2).clamp(SHORTEST_PAUSE, Duration::from_secs(2));
        }
    }

    /// The connection of that number is there; the returned future ends when nothing comes from it.
    fn come_up(&self, number: u64) -> impl Future<Output = ()> {
        self.state.send_replace(PushState::Up);
        let mut unheard = self.opened.unheard.subscribe();
        async move {
            // The sender lives as long as the store.
            let _ = unheard.wait_for(|unheard| *unheard == number).await;
        }
    }

    /// Ends when the server is silent, or no primary any more.
    async fn until_silent(&self, mut wire: Wire) {
        let clock = &self.connections.clock;
        loop {
            clock.sleep_until(clock.now().after(PULSE_INTERVAL)).await;
            if self.places.is_empty() {
                continue;
            }
            let role = words(&["ROLE"]);
            let asked =
                clock.timeout_at(clock.now().after(PULSE_INTERVAL), wire.client.send_packed_command(&role)).await;
            if !asked.is_some_and(|answer| answer.is_ok_and(|role| !is_replica(&role))) {
                return;
            }
        }
    }

    /// Each waiter subscribes in its own slot, and opens the connection for that. If a connection ends, all waiters ask, and
    /// subscribe again.
    async fn listen_to_cluster(&self, servers: &Arc<Servers>) {
        loop {
            let (sender, mut events) = mpsc::unbounded_channel();
            let (places, servers_of_slots) = (self.places.clone(), servers.clone());
            let nodes = servers.beside(move |event| match event {
                NodeEvent::Push(push) => receive(&places, &sender, push),
                NodeEvent::Unreachable => servers_of_slots.look_soon(),
                NodeEvent::Ended => {
                    servers_of_slots.look_soon();
                    // Nobody receives any more: the store was closed.
                    let _ = sender.send(Event::Disconnected);
                }
            });
            let since = self.connections.clock.now();
            let number = {
                let mut slots = lock(&self.slots);
                *slots = Slots { nodes: Some(Arc::new(nodes)), subscribed: HashSet::new() };
                self.opened.next()
            };
            // Pushes that came meanwhile are lost.
            self.places.wake_all();
            let unheard = self.come_up(number);
            // A server pushes nothing although it has a subscription: it may be a replica by now. All other slots lose
            // their pushes for a moment, so not too often.
            let wrong = async {
                unheard.await;
                servers.look_soon();
                self.connections.clock.sleep_until(since.after(GOOD_CONNECTION_TIME)).await;
            };
            let heard = async {
                while let Some(event) = events.recv().await {
                    self.hear(event);
                }
            };
            tokio::select! {
                () = heard => {}
                () = wrong => {}
            }
        }
    }

    fn hear(&self, event: Event) {
        match event {
            Event::Stray(stray) => self.give_back(stray),
            // The next waiter subscribes again.
            Event::Moved(name) => {
                lock(&self.slots).subscribed.retain(|slot| channel(&self.process, *slot).as_bytes() != name);
                self.places.wake_all();
            }
            Event::Disconnected => {
                lock(&self.slots).subscribed.clear();
                self.places.wake_all();
            }
        }
    }

    async fn open(&self) -> Result<(Wire, mpsc::UnboundedReceiver<Event>)> {
        let (sender, events) = mpsc::unbounded_channel();
        let places = self.places.clone();
        let sender_of = move |push: PushInfo| {
            receive(&places, &sender, push);
            Ok::<(), ::redis::aio::SendError>(())
        };
        let mut wire = self.connections.dial(config().set_push_sender(sender_of)).await?;
        let limit = self.connections.clock.now().after(OPEN_LIMIT);
        let subscribed = async {
            wire.client.subscribe(&self.channel).await?;
            wire.client.send_packed_command(&words(&["ROLE"])).await
        };
        match self.connections.clock.timeout_at(limit, subscribed).await {
            Some(Ok(role)) if is_replica(&role) => {
                Err(Error::new(ErrorKind::NotPrimary, "this Redis is a replica, and a replica pushes nothing"))
            }
            Some(Ok(_)) => Ok((wire, events)),
            Some(Err(error)) => Err(wire.fault(&error)),
            None => Err(Error::outage("Redis did not confirm the subscription")),
        }
    }

    /// Releases a grant without a waiter: the claim was given up while its request was under way.
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
                    connections.script(&shared, &SHARED_SCRIPTS.end, build).await
                }
            };
        };
        if let Ok(thread) = dlock_store::background() {
            thread.spawn(release);
        }
    }
}

/// Whether the answer to `ROLE` is that of a replica. False if the account may not ask.
fn is_replica(role: &Value) -> bool {
    matches!(role, Value::Array(role) if !matches!(role.first(), Some(Value::BulkString(name)) if name == b"master"))
}

/// An event that the callback has seen and the task must act upon.
enum Event {
    /// A lock was granted for which nobody waits.
    Stray(Stray),
    Disconnected,
    /// The slot of this channel has moved.
    Moved(Vec<u8>),
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
