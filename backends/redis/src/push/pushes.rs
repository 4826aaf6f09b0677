//! The connection on which the server pushes grants. Each store has one, on our own thread. It is opened when a caller
//! must wait for the first time.
//!
//! In a cluster the server of a slot pushes only to clients that have subscribed there. So a process subscribes to a
//! channel in each slot in which it waits for a lock.
//!
//! A connection can lead to the wrong server and stay open: to a primary that has become a replica, which takes
//! subscriptions all the same. The granting server reports this to a waiter that asks for a place in the queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{BootInstant, LockKey, Result};
use dlock_store::Seldom;
use tokio::sync::{oneshot, watch};

use crate::connections::pool::Connections;
use crate::layout::slots::{channel, slot_of};
use crate::push::listener::Listener;
use crate::push::state::{Opened, PushState, Slots, lock};
use crate::queue::places::Places;

/// The longest time that an attempt waits for the connection to open.
const LONGEST_OPEN_WAIT: Duration = Duration::from_millis(500);

/// How long an attempt waits until the store can tell it of news, if its caller waits until then. The rest of the wait is for
/// the answer: without it, a caller would hear of an outage although another owner holds the lock.
pub(crate) fn open_wait(now: BootInstant, until: BootInstant) -> Duration {
    (until.since(now) / 4).min(LONGEST_OPEN_WAIT)
}

/// The pushes of one store.
pub(crate) struct Pushes {
    connections: Arc<Connections>,
    places: Arc<Places>,
    /// The name of this process in wait queues: random, new for each opened store.
    pub(crate) process: Arc<str>,
    /// Ends the task when it is dropped.
    running: Mutex<Option<oneshot::Sender<()>>>,
    state: Arc<watch::Sender<PushState>>,
    slots: Arc<Mutex<Slots>>,
    opened: Arc<Opened>,
}

impl Pushes {
    pub(crate) fn new(connections: Arc<Connections>, places: Arc<Places>, process: Arc<str>) -> Self {
        let state = Arc::new(watch::Sender::new(PushState::Opening));
        let (slots, opened) = (Arc::default(), Arc::default());
        Self { connections, places, process, running: Mutex::new(None), state, slots, opened }
    }

    /// Which connection it is that pushes arrive on.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.count.load(Ordering::Relaxed)
    }

    /// The server that was asked about this lock pushes nothing to this connection, so it is opened anew. In a cluster
    /// the lock may only be on its way to another server: there the slot is forgotten at once, and the connection is
    /// kept for a while.
    pub(crate) fn unheard(&self, key: &LockKey, opened: u64) {
        let mut slots = lock(&self.slots);
        if opened == self.opened() {
            slots.subscribed.remove(&slot_of(key));
            drop(slots);
            self.opened.unheard.send_replace(opened);
        }
    }

    /// Whether pushes about this lock arrive.
    pub(crate) fn is_up(&self, key: &LockKey) -> bool {
        *self.state.borrow() == PushState::Up
            && (self.connections.cluster().is_none() || lock(&self.slots).subscribed.contains(&slot_of(key)))
    }

    /// Lets pushes about this lock arrive, for a caller that waits until then; false if they cannot at present, and then
    /// waiting means polling.
    pub(crate) async fn come_up(&self, key: &LockKey, until: BootInstant) -> bool {
        if self.start().is_err() {
            return false;
        }
        let mut state = self.state.subscribe();
        let opened = async {
            state.wait_for(|state| *state != PushState::Opening).await.is_ok_and(|state| *state == PushState::Up)
        };
        let clock = &self.connections.clock;
        let limit = clock.now().after(open_wait(clock.now(), until));
        if !clock.timeout_at(limit, opened).await.unwrap_or(false) {
            return false;
        }
        self.connections.cluster().is_none() || clock.timeout_at(limit, self.subscribe(key)).await.unwrap_or(false)
    }

    /// Subscribes in the lock's slot.
    async fn subscribe(&self, key: &LockKey) -> bool {
        let slot = slot_of(key);
        let (nodes, opened) = (lock(&self.slots).nodes.clone(), self.opened());
        let (Some(nodes), Some(servers)) = (nodes, self.connections.cluster()) else { return false };
        if let Err(error) = servers.subscribe(&nodes, slot, &channel(&self.process, slot)).await {
            static TOLD: Seldom = Seldom::new();
            let host = format!("{:?}", self.connections.target);
            TOLD.line(
                format!("{host} {error}"),
                move || tracing::warn!(host, %error, "Redis pushes nothing for this slot, so waiters poll"),
            );
            return false;
        }
        let mut slots = lock(&self.slots);
        // The connections may be other ones by now.
        let is_present = slots.nodes.is_some() && opened == self.opened();
        if is_present {
            slots.subscribed.insert(slot);
        }
        is_present
    }

    /// Ends the connection. The next waiter opens it again.
    pub(crate) fn stop(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn start(&self) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return Ok(());
        }
        let thread = dlock_store::background()?;
        let (end, ended) = oneshot::channel();
        self.state.send_replace(PushState::Opening);
        let listener = Listener {
            connections: self.connections.clone(),
            places: self.places.clone(),
            channel: format!("dl1:p:{}", self.process),
            process: self.process.clone(),
            state: self.state.clone(),
            slots: self.slots.clone(),
            opened: self.opened.clone(),
        };
        thread.spawn(async move {
            tokio::select! {
                () = listener.listen() => {}
                _ = ended => {}
            }
            listener.state.send_replace(PushState::Down);
            *lock(&listener.slots) = Slots::default();
        });
        *running = Some(end);
        Ok(())
    }
}
