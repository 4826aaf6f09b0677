//! The connection on which the server pushes grants: one for each store, on our own thread, opened when somebody has
//! to wait for the first time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::connection::{Connections, config, on};
use super::fault;
use super::grant::{Message, Stray};
use super::line::Places;
use super::scripts::SCRIPTS;
use super::scripts_shares;
use crate::error::{Error, Result};

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
}

impl Pushes {
    pub(super) fn new(connections: Arc<Connections>, places: Arc<Places>, process: Arc<str>) -> Self {
        let state = Arc::new(watch::Sender::new(State::Opening));
        Self { connections, places, process, running: Mutex::new(None), state }
    }

    /// Do pushes arrive?
    pub(super) fn is_up(&self) -> bool {
        *self.state.borrow() == State::Up
    }

    /// Lets pushes arrive; false if they cannot at present, and then waiting means polling.
    pub(super) async fn come_up(&self) -> bool {
        if self.start().is_err() {
            return false;
        }
        let mut state = self.state.subscribe();
        let opened =
            async { state.wait_for(|state| *state != State::Opening).await.is_ok_and(|state| *state == State::Up) };
        // Who asks has a deadline of its own; polling meanwhile is better than waiting for this.
        let limit = self.connections.clock.now().after(PATIENCE);
        self.connections.clock.timeout_at(limit, opened).await.unwrap_or(false)
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
            state: self.state.clone(),
        };
        thread.spawn(async move {
            tokio::select! {
                () = listener.listen() => {}
                _ = ended => {}
            }
            listener.state.send_replace(State::Down);
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
    state: Arc<watch::Sender<State>>,
}

impl Listener {
    async fn listen(&self) {
        let mut pause = Duration::ZERO;
        loop {
            match self.open().await {
                Ok((_open, mut events)) => {
                    pause = Duration::ZERO;
                    // Whatever was pushed while nobody listened is lost: everybody asks.
                    self.places.wake_all();
                    self.state.send_replace(State::Up);
                    while let Some(Event::Stray(stray)) = events.recv().await {
                        self.give_back(stray);
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

/// Runs inside the client's driver: it only moves values.
fn receive(places: &Places, events: &mpsc::UnboundedSender<Event>, push: PushInfo) {
    let event = match (push.kind, &push.data[..]) {
        (PushKind::Disconnection, _) => Event::Disconnected,
        (PushKind::Message, [_, Value::BulkString(text)]) => {
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
