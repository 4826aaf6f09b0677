//! Sends events to `tracing` and to observers. A panic of either costs one event, and no lock.
//!
//! A caller's events are sent on the caller's thread, also if that thread sleeps while ours works for it: a layer or an
//! observer that blocks there delays this caller. Events of our own thread go through a thread of their own, because one
//! that blocks must not delay a renewal. It delays the further events of that thread.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dlock_contract::engine::{caught, drop_elsewhere, is_ours};
use dlock_contract::{BootInstant, Clock, ErrorKind, LossCause};

use crate::events::outage_log::{Failed, OutageLog};
use crate::events::store_event::{StoreEvent, StoreLabel};
use crate::site::Label;

/// An event of one lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A call asks for the lock. Exactly one further event says how that ends: [`Acquired`](Self::Acquired), [`Busy`](Self::Busy),
    /// [`AlreadyRun`](Self::AlreadyRun), [`TimedOut`](Self::TimedOut), [`Failed`](Self::Failed) or [`GivenUp`](Self::GivenUp).
    /// A call that joins the hold of an enclosing call asks for nothing. Not in the log.
    Asked {
        /// The longest wait; `None` for a call that does not wait, or waits without end.
        wait: Option<Duration>,
        /// The longest hold; `None` for a leadership without one.
        max_hold: Option<Duration>,
        /// The period of `once_per`.
        once_per: Option<Duration>,
    },
    /// The caller dropped the call before its end, as a `select!` or a timeout does.
    GivenUp {
        /// From the call to the drop.
        waited: Duration,
    },
    /// The lock was acquired. Exactly one further event says how the hold ends: [`Released`](Self::Released),
    /// [`Lost`](Self::Lost) or [`NotSettled`](Self::NotSettled).
    Acquired {
        /// From the call to the grant.
        waited: Duration,
        /// How many times the store was asked.
        attempts: u32,
        /// The way on which the lock came to this caller.
        way: GrantWay,
        /// The fencing token, if the store gives one. Of an election it is the term.
        token: Option<u64>,
    },
    /// Another owner held it, and the caller did not want to wait.
    Busy,
    /// The run of this period was started already.
    AlreadyRun,
    /// The wait ran out.
    TimedOut {
        /// How long it was.
        waited: Duration,
        /// How many times the store was asked.
        attempts: u32,
    },
    /// The acquisition ended with an error that is no contention: the store is down, or the request is invalid.
    Failed {
        /// The kind of the error.
        kind: ErrorKind,
        /// The words of the error.
        reason: Arc<str>,
    },
    /// The lock was released.
    Released {
        /// From the grant to the release.
        held: Duration,
    },
    /// The lock was lost while it was held.
    Lost {
        /// The cause of the loss.
        cause: LossCause,
        /// From the grant to the loss.
        held: Duration,
    },
    /// A renewal has prolonged the hold. Not in the log.
    Renewed {
        /// The time that was left until the loss.
        remaining: Duration,
        /// The ttl of the hold.
        ttl: Duration,
    },
    /// A renewal failed. The lock is still held until its validity ends.
    ///
    /// Observers hear of each failure. The log has a warning when a store begins to fail, one every 30 s with counts,
    /// and one at the end. Each single failure has the level debug.
    RenewalFailed {
        /// Why.
        reason: Arc<str>,
        /// The time until the lock is lost.
        remaining: Duration,
    },
    /// A release failed. If no retry succeeds, the ttl frees the lock.
    ReleaseFailed {
        /// Why.
        reason: Arc<str>,
    },
    /// The body came to its end, and the store did not make its work final, or nobody knows whether it did.
    NotSettled {
        /// Which of the two.
        kind: ErrorKind,
        /// From the grant to the end of the body.
        held: Duration,
    },
    /// A run of a task that is recorded (`once_per`, or `record`) has succeeded, and the store has noted it. Not in the log.
    Succeeded {
        /// The time of the record, in milliseconds since 1970.
        at_ms: u64,
    },
    /// The call was refused, because it and other calls would have waited for each other, or it for itself. If the call had
    /// asked for the lock, [`Failed`](Self::Failed) follows. Not in the log.
    Deadlock {
        /// [`ErrorKind::WouldDeadlock`], or [`ErrorKind::Conflict`] if the store has found it.
        kind: ErrorKind,
    },
    /// Locks are taken in two orders in this program, which can make two callers wait for each other. Told once for
    /// each pair, in debug builds only.
    OrderCycle {
        /// Where the other order is taken.
        elsewhere: Arc<str>,
    },
    /// A nested call with `reentrant` has joined the hold of an enclosing call, and some of its own options have no effect: the
    /// hold keeps its own.
    OptionsIgnored {
        /// The names of the options: `ttl, max_hold`.
        options: Arc<str>,
        /// Where the enclosing call has taken the lock.
        holder: Arc<str>,
    },
    /// Less than a fifth of the ttl is left: the body takes longer than the ttl, or renewals fail.
    NearExpiry {
        /// How much is left.
        remaining: Duration,
    },
}

/// The way on which a lock came to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrantWay {
    /// The caller has asked the store for it.
    Request,
    /// A caller of this process has asked for it with the release of its own hold.
    Release,
    /// A caller of this process has passed its hold on (`cohort`). The store was not asked.
    Cohort,
    /// The store has granted it to the first of its wait queue.
    Queue,
}

impl GrantWay {
    /// The way in one word, for labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Release => "release",
            Self::Cohort => "cohort",
            Self::Queue => "queue",
        }
    }
}

/// Receives events. An observer may be slow or panic. Panics are caught and counted; the lock is not affected.
///
/// Events of a caller are sent on its own thread; for a blocking caller, when its call returns. Events of a lock while
/// it is held are sent on a thread of dlock's. It keeps 4096 events for slow observers, and counts the events that it
/// drops.
///
/// ```
/// # use dlock_runtime as dlock;
/// use dlock::{Event, Label, Observer};
/// struct Timeouts(std::sync::atomic::AtomicU64);
/// impl Observer for Timeouts {
///     fn on_event(&self, label: &Label, event: &Event) {
///         if let Event::TimedOut { .. } = event {
///             eprintln!("alert: nobody gets {} on {}", label.template(), label.backend());
///             self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Receives one event. The label carries the key's template, never a rendered key.
    fn on_event(&self, label: &Label, event: &Event);

    /// Receives one event of a store. Default: ignores it.
    fn on_store_event(&self, store: &StoreLabel, event: &StoreEvent) {
        let _ = (store, event);
    }

    /// Receives how many events were dropped since it was last told, because observers were too slow. Default: ignores it.
    fn on_dropped(&self, events: u64) {
        let _ = events;
    }
}

/// The observers and the log of one registry.
pub(crate) struct Events {
    clock: Clock,
    observers: Observers,
    panics: AtomicU64,
    /// The number of events for which the observers' thread was too slow.
    dropped: AtomicU64,
    observers_thread: OnceLock<Option<SyncSender<Told>>>,
    outages: OutageLog,
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
            dropped: AtomicU64::new(0),
            observers_thread: OnceLock::new(),
            outages: OutageLog::default(),
        }
    }

    pub(crate) fn add(self: &Arc<Self>, observer: Arc<dyn Observer>) {
        self.observers.add(observer);
        // Not at the first event: our own thread would start it in the middle of a release.
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
        if DEFERRED.try_with(|deferred| deferred.keep(self, Told::Lock(label.clone(), event.clone()))).is_ok() {
            return;
        }
        if is_ours() {
            return self.send(label, event.clone());
        }
        caught(|| self.trace(label, event));
        self.each(|observer| observer.on_event(label, event));
    }

    /// Sends an event of a store, which the log does not have.
    pub(crate) fn tell_of_store(self: &Arc<Self>, store: &StoreLabel, event: &StoreEvent) {
        if !self.has_observers() {
            return;
        }
        let told = || Told::Store(store.clone(), event.clone());
        if DEFERRED.try_with(|deferred| deferred.keep(self, told())).is_ok() {
            return;
        }
        if is_ours() { self.put(told()) } else { self.each(|observer| observer.on_store_event(store, event)) }
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

    /// Sends an event that the log does not have, on the caller's thread.
    pub(crate) fn tell_observers(self: &Arc<Self>, label: &Label, event: &Event) {
        if self.has_observers() {
            self.tell(label, event);
        }
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

    /// Notes a confirmed renewal. Only the log uses it.
    pub(crate) fn renewed(&self, label: &Label) {
        self.outages.answered(label.backend(), || self.clock.now());
    }

    fn trace(&self, label: &Label, event: &Event) {
        let (outages, backend, now) = (&self.outages, label.backend(), || self.clock.now());
        // A line at the level of a warning, or of an error. Otherwise the outage has its own.
        let is_told = match event {
            Event::Failed { kind, reason } if is_of_the_store(kind) => {
                outages.failed(backend, Failed::Call, reason, now());
                false
            }
            Event::RenewalFailed { reason, .. } => {
                outages.failed(backend, Failed::Renewal, reason, now());
                false
            }
            Event::ReleaseFailed { reason } => {
                outages.failed(backend, Failed::Release, reason, now());
                false
            }
            Event::Lost { .. } => outages.lost(backend, now),
            Event::NearExpiry { .. } => !outages.is_failing(backend),
            Event::Acquired { .. } | Event::Busy | Event::AlreadyRun | Event::TimedOut { .. } => {
                outages.answered(backend, now);
                false
            }
            Event::Failed { kind, .. } => *kind != ErrorKind::ShutDown,
            Event::Asked { .. } | Event::GivenUp { .. } | Event::Renewed { .. } => false,
            _ => true,
        };
        trace(label, event, is_told);
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
                // An event is dropped while many others wait here, so each drop is told soon.
                let dropped = events.dropped.load(Ordering::Relaxed);
                if dropped > known {
                    events.each(|observer| observer.on_dropped(dropped - known));
                    known = dropped;
                }
            }
        };
        std::thread::Builder::new().name("dlock-events".into()).spawn(run).ok().map(|_| sender)
    }
}

/// A list to which observers are only added. Each event reads it without a lock and without a copy.
#[derive(Default)]
struct Observers(OnceLock<Box<Node>>);

struct Node {
    observer: Arc<dyn Observer>,
    next: Observers,
}

impl Observers {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Observer>> {
        std::iter::successors(self.0.get(), |node| node.next.0.get()).map(|node| &node.observer)
    }

    fn add(&self, observer: Arc<dyn Observer>) {
        let (mut end, mut node) = (self, Box::new(Node { observer, next: Self::default() }));
        // Another thread may add one too.
        while let Err(refused) = end.0.set(node) {
            node = refused;
            let Some(before) = end.0.get() else { return };
            end = &before.next;
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // The last hold of a registry that was dropped may end on our thread.
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

/// A line at this level if it is told, else at the level debug.
macro_rules! line_at {
    ($level:ident if $is_told:expr, $($line:tt)*) => {
        if $is_told {
            tracing::$level!(target: "dlock", $($line)*);
        } else {
            tracing::debug!(target: "dlock", $($line)*);
        }
    };
}

fn trace(label: &Label, event: &Event, is_told: bool) {
    let (name, key, backend) = (label.name(), label.template(), label.backend());
    match event {
        Event::Acquired { waited, attempts, .. } => {
            tracing::debug!(target: "dlock", name, key, backend, ?waited, attempts, "acquired");
        }
        Event::Asked { .. } | Event::Renewed { .. } | Event::Succeeded { .. } | Event::Deadlock { .. } => {}
        Event::GivenUp { waited } => {
            tracing::debug!(target: "dlock", name, key, backend, ?waited, "given up");
        }
        Event::Busy => tracing::debug!(target: "dlock", name, key, backend, "busy"),
        Event::AlreadyRun => tracing::debug!(target: "dlock", name, key, backend, "already run"),
        Event::TimedOut { waited, attempts } => {
            tracing::debug!(target: "dlock", name, key, backend, ?waited, attempts, "timed out");
        }
        Event::Failed { kind, reason } => {
            line_at!(warn if is_told, name, key, backend, kind = kind.as_str(), %reason, "failed");
        }
        Event::Released { held } => tracing::debug!(target: "dlock", name, key, backend, ?held, "released"),
        Event::Lost { cause, held } => {
            line_at!(error if is_told, name, key, backend, ?cause, ?held, "lost");
        }
        Event::RenewalFailed { reason, remaining } => {
            tracing::debug!(target: "dlock", name, key, backend, %reason, ?remaining, "renewal failed");
        }
        Event::ReleaseFailed { reason } => {
            tracing::debug!(target: "dlock", name, key, backend, %reason, "release failed");
        }
        Event::NotSettled { kind, held } => {
            tracing::error!(target: "dlock", name, key, backend, kind = kind.as_str(), ?held, "not settled");
        }
        Event::OptionsIgnored { options, holder } => {
            tracing::debug!(target: "dlock", name, key, backend, %options, %holder, "joined a hold, which keeps its own options");
        }
        Event::OrderCycle { elsewhere } => {
            let here = label.place();
            tracing::warn!(target: "dlock", name, key, backend, here, %elsewhere, "two locks are taken in opposite orders");
        }
        Event::NearExpiry { remaining } => {
            line_at!(warn if is_told, name, key, backend, ?remaining, "near expiry");
        }
    }
}
