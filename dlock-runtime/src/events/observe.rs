//! Sends events to `tracing` and to observers. A panic of either costs one event, and no lock.
//!
//! A caller's events are sent on the caller's thread, also if that thread sleeps while ours works for it: a layer or an
//! observer that blocks there delays this caller. Events of our own thread go through another thread, so that an
//! observer that blocks delays no renewal. It delays the later events of that thread.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dlock_contract::engine::caught;
use dlock_contract::{BootInstant, Error, ErrorKind, LossCause};
use dlock_store::Clock;
use dlock_store::engine::simulation::is_here as is_simulated;
use dlock_store::{background, drop_elsewhere, is_ours, line};

use crate::events::event::Event;
use crate::events::line_limit::{Kind, LineLimit, Put};
use crate::events::lines::{self, OutageLine};
use crate::events::observer_list::{Observer, Observers};
use crate::events::outage_log::{Failed, OutageLog, Why};
use crate::events::store_event::StoreEvent;
use crate::site::{Label, StoreLabel};

/// The observers and the log of one registry.
pub(crate) struct Events {
    clock: Clock,
    observers: Observers,
    panics: AtomicU64,
    /// The number of events that were dropped, because the observers' thread was too slow.
    dropped: Arc<AtomicU64>,
    observers_thread: OnceLock<Option<SyncSender<Told>>>,
    outages: OutageLog,
    limit: LineLimit,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            observers: Observers::default(),
            panics: AtomicU64::new(0),
            dropped: Arc::default(),
            observers_thread: OnceLock::new(),
            outages: OutageLog::default(),
            limit: LineLimit::default(),
        }
    }

    pub(crate) fn add(self: &Arc<Self>, observer: Arc<dyn Observer>) {
        self.observers.add(observer);
        // Starts the thread now. At the first event, our own thread would start it in the middle of a release.
        self.observers_thread.get_or_init(|| self.start());
    }

    pub(crate) fn has_observers(&self) -> bool {
        self.observers.all().next().is_some()
    }

    /// How many times an observer has panicked, and how many events were dropped because observers were slow.
    pub(crate) fn trouble(&self) -> (u64, u64) {
        (self.panics.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Sends an event on the caller's thread.
    pub(crate) fn tell(self: &Arc<Self>, label: &Label, event: &Event) {
        if !self.send_elsewhere(|| Told::Lock(label.clone(), event.clone())) {
            caught(|| self.trace(label, event));
            self.each(|observer| observer.on_event(label, event));
        }
    }

    /// Sends an event that the log does not have, on the caller's thread.
    pub(crate) fn tell_observers(self: &Arc<Self>, label: &Label, event: &Event) {
        if self.has_observers() && !self.send_elsewhere(|| Told::Lock(label.clone(), event.clone())) {
            self.each(|observer| observer.on_event(label, event));
        }
    }

    /// Sends an event of a store, which the log does not have.
    pub(crate) fn tell_of_store(self: &Arc<Self>, store: &StoreLabel, event: &StoreEvent) {
        if self.has_observers() && !self.send_elsewhere(|| Told::Store(store.clone(), event.clone())) {
            self.each(|observer| observer.on_store_event(store, event));
        }
    }

    /// Keeps an event for a caller that sleeps now, or hands an event of our own thread to the observers' thread.
    #[inline]
    fn send_elsewhere(self: &Arc<Self>, told: impl Fn() -> Told) -> bool {
        // The work for a caller that sleeps is done on our thread too.
        let is_ours = is_ours();
        if is_ours {
            self.keep_or_put(told());
        }
        is_ours
    }

    #[cold]
    fn keep_or_put(self: &Arc<Self>, told: Told) {
        match DEFERRED.try_with(DeferredEvents::clone) {
            Ok(deferred) => deferred.keep(self, told),
            Err(_) => self.put(told),
        }
    }

    fn tell_again(self: &Arc<Self>, told: &Told) {
        match told {
            Told::Lock(label, event) => self.tell(label, event),
            Told::Store(store, event) => self.tell_of_store(store, event),
        }
    }

    fn each(&self, tell: impl Fn(&dyn Observer)) {
        for observer in self.observers.all() {
            if caught(|| tell(&**observer)).is_none() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn now(&self) -> BootInstant {
        self.clock.now()
    }

    /// Sends an event of a caller that may sleep for ever after it.
    #[cfg(debug_assertions)]
    pub(crate) fn tell_now(self: &Arc<Self>, label: &Label, event: Event) {
        if DEFERRED.try_with(|_| ()).is_ok() { self.send(label, event) } else { self.tell(label, &event) }
    }

    /// Sends an event of our own thread, through the observers' thread.
    pub(crate) fn send(self: &Arc<Self>, label: &Label, event: Event) {
        self.put(Told::Lock(label.clone(), event));
    }

    fn put(self: &Arc<Self>, told: Told) {
        if is_simulated() {
            return self.tell_again(&told);
        }
        let sender = self.observers_thread.get_or_init(|| self.start());
        let sent = sender.as_ref().is_some_and(|sender| sender.try_send(told).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends an event that the log does not have, of our own thread.
    pub(crate) fn send_to_observers(self: &Arc<Self>, label: &Label, event: Event) {
        if self.has_observers() {
            self.send(label, event);
        }
    }

    /// The registry is shut down: writes what the log still has to tell.
    pub(crate) fn end(&self) {
        self.limit.end();
        self.outages.end().into_iter().for_each(|told| line(move || told.write(Some(0))));
    }

    /// Whether the log tells of an outage of this store now.
    pub(crate) fn is_failing(&self, backend: &str) -> bool {
        self.outages.is_failing(backend)
    }

    /// Notes that a store takes and keeps locks, for the log of outages.
    pub(crate) fn note_answer(self: &Arc<Self>, backend: &str) {
        self.tell_of_outage(self.outages.note_answer(backend, || self.clock.now()));
    }

    /// Notes a failed request of a call that may ask again, for the log of outages.
    pub(crate) fn note_failed_request(self: &Arc<Self>, store: &StoreLabel, error: &Error) {
        let (reason, code) = (error.message().into(), error.code().map(Into::into));
        self.note_failure(store, Failed::Request, Why { reason: &reason, code: &code });
    }

    fn note_failure(self: &Arc<Self>, store: &StoreLabel, failed: Failed, why: Why<'_>) {
        let told = self.outages.note_failure(store, failed, why, self.clock.now());
        told.into_iter().for_each(|line| self.tell_of_outage(line));
    }

    fn trace(self: &Arc<Self>, label: &Label, event: &Event) {
        let (outages, backend) = (&self.outages, label.backend());
        let failed = |failed, reason, code| self.note_failure(label.store_label(), failed, Why { reason, code });
        // Whether the line has the level warn or error. Otherwise it has the level debug, because the outage has its
        // own lines.
        let is_told = match event {
            Event::Failed { kind, reason, code, .. } if is_of_the_store(kind) => {
                failed(Failed::Call, reason, code);
                false
            }
            Event::RenewalFailed { reason, code, .. } => {
                failed(Failed::Renewal, reason, code);
                false
            }
            Event::ReleaseFailed { reason, code, .. } => {
                failed(Failed::Release, reason, code);
                false
            }
            Event::Lost { cause, .. } => {
                outages.note_loss(backend);
                // The store has said that the hold is over, so it answers.
                if *cause == LossCause::Store {
                    self.note_answer(backend);
                }
                true
            }
            Event::NearExpiry { .. } => !outages.is_failing(backend),
            Event::Failed { kind, .. } => *kind != ErrorKind::ShutDown,
            // Some of these end without a request. `Store::ask` notes the answers.
            Event::Asked { .. } | Event::GivenUp { .. } | Event::Renewed { .. } | Event::Acquired { .. } => false,
            Event::Busy { .. } | Event::AlreadyRun { .. } | Event::TimedOut { .. } => false,
            _ => true,
        };
        match lines::kind_of(event) {
            Some(kind) if is_told => {
                let (of, event) = (label.clone(), event.clone());
                self.in_turn(&label.store_label().name, kind, move |told| lines::write(&of, &event, told));
            }
            _ => lines::write(label, event, is_told.then_some(0)),
        }
    }

    /// Writes a line of the level warn or error: now, if there was none of this store for a second, or else later. The level debug has
    /// it now in any case.
    pub(crate) fn in_turn(
        self: &Arc<Self>,
        store: &Arc<str>,
        kind: Kind,
        write: impl Fn(Option<u64>) + Send + Sync + 'static,
    ) {
        let write = Arc::new(write);
        let told = write.clone();
        let guarded = Box::new(move |left_out| line(move || told(Some(left_out))));
        let Put::Later { ask_at } = self.limit.line(store, kind, self.clock.now(), guarded) else { return };
        line(move || write(None));
        // Without our thread, the next line of the store or the shutdown writes it.
        if let Some(mut ask_at) = ask_at.filter(|_| !is_simulated())
            && let Ok(background) = background()
        {
            // Weak, since the clock of a test may stand still for ever.
            let (events, clock, store) = (Arc::downgrade(self), self.clock.clone(), store.clone());
            background.spawn(async move {
                loop {
                    clock.sleep_until(ask_at).await;
                    let Some(events) = events.upgrade() else { return };
                    let Some(again) = events.limit.next(&store, clock.now()) else { return };
                    ask_at = again;
                }
            });
        }
    }

    fn tell_of_outage(self: &Arc<Self>, told: Option<OutageLine>) {
        if let Some(told) = told {
            let name = told.store.name.clone();
            self.in_turn(&name, told.kind(), move |left_out| told.write(left_out));
        }
    }

    /// The log lacks the lines of these events too.
    fn tell_of_dropped(self: &Arc<Self>) {
        let dropped = self.dropped.clone();
        self.in_turn(&"".into(), ("events dropped", ""), move |told| {
            if told.is_some() {
                lines::write_dropped(dropped.load(Ordering::Relaxed));
            }
        });
    }

    fn start(self: &Arc<Self>) -> Option<SyncSender<Told>> {
        let (sender, receiver) = sync_channel::<Told>(4096);
        // Weak, so that the thread ends with its registry.
        let events = Arc::downgrade(self);
        let run = move || {
            let mut known = 0;
            while let Ok(told) = receiver.recv() {
                let Some(events) = events.upgrade() else { return };
                events.tell_again(&told);
                // An event is dropped while many others wait here, so each drop is reported soon.
                let dropped = events.dropped.load(Ordering::Relaxed);
                if dropped > known {
                    events.each(|observer| observer.on_dropped(dropped - known));
                    known = dropped;
                    events.tell_of_dropped();
                }
            }
        };
        std::thread::Builder::new().name("dlock-events".into()).spawn(run).ok().map(|_| sender)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.limit.end();
        // Elsewhere, because the last hold of a dropped registry may end on our thread.
        drop_elsewhere(std::mem::take(&mut self.observers));
    }
}

tokio::task_local!(static DEFERRED: DeferredEvents);

/// The events of a caller that sleeps while our thread works for it. They are sent later, because observers may block
/// or take a lock.
#[derive(Clone, Default)]
pub(crate) struct DeferredEvents(Arc<Mutex<Vec<DeferredEvent>>>);

type DeferredEvent = (Arc<Events>, Told);

/// An event on its way to another thread.
#[derive(Clone)]
enum Told {
    Lock(Label, Event),
    Store(StoreLabel, StoreEvent),
}

impl DeferredEvents {
    /// Keeps the events that are sent while this future is polled.
    pub(crate) fn during<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        DEFERRED.scope(self.clone(), future)
    }

    /// Sends the events that were kept.
    pub(crate) fn tell(self) {
        let deferred = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        deferred.iter().for_each(|(events, told)| events.tell_again(told));
    }

    fn keep(&self, events: &Arc<Events>, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((events.clone(), told));
    }
}

/// Whether such an error says that the store fails, not the call.
fn is_of_the_store(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Outage | ErrorKind::NotPrimary | ErrorKind::PermissionDenied | ErrorKind::Protocol)
}
