//! The backends of a process by name, its defaults, and the end of it all.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use dlock_contract::engine::{background, here, is_forked};
use dlock_contract::{Backend, BootInstant, Clock, Error, ErrorKind, Key, LossCause, Result};
use futures::FutureExt;

use crate::closing::{Closing, Jobs};
use crate::lock::{Lock, LockAll};
use crate::locker::shut_down;
use crate::observe::{Events, Observer};
use crate::options::Defaults;
#[cfg(debug_assertions)]
use crate::order::Order;
use crate::release;
use crate::store::Store;
use crate::tuning::{Changes, Tunings};
use crate::watchdog::Watchdog;

/// The backends of a process by name. There is one global registry, which the attribute uses; a test may have its own.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

// Aligned: see `Shared`.
#[repr(align(128))]
struct Inner {
    shared: Arc<Shared>,
    stores: RwLock<Stores>,
    defaults: RwLock<Arc<Defaults>>,
    trace: RwLock<Option<Arc<Trace>>>,
    /// Most programs have no such hook, and pay one load.
    traced: AtomicBool,
    tunings: Tunings,
    changes: Changes,
}

type Trace = dyn Fn() -> Option<String> + Send + Sync;

#[derive(Default)]
struct Stores {
    by_name: BTreeMap<String, Arc<Store>>,
    default: Option<Arc<Store>>,
}

/// What every hold of a registry needs.
///
/// Aligned, as all that the threads of a program share: what they read would else lie beside what they all write, such as
/// the counter of its holders, and come from another processor's cache each time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) events: Arc<Events>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) closing: Closing,
    #[cfg(debug_assertions)]
    pub(crate) order: Order,
}

impl Shared {
    /// Waits until `done`, but not beyond `deadline`. Holds and jobs end without telling anybody, which would cost every
    /// call something; looking now and then is good enough for a shutdown.
    async fn until(&self, deadline: BootInstant, done: impl Fn() -> bool) {
        while self.clock.now() < deadline && !done() {
            let pause = self.clock.sleep_until(self.clock.now().after(Duration::from_millis(5)).min(deadline));
            #[cfg(feature = "testing")]
            if self.clock.is_of_kit() {
                // Where a test does not move its clock, this has an end all the same.
                let Ok(()) = self.clock.unless_it_stands(pause).await else { return };
                continue;
            }
            pause.await;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.watchdog.stop();
    }
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Holds that had not ended by the deadline: their bodies were told `Lost`, and the locks given back.
    pub cut_off: usize,
    /// Releases that the stores had not confirmed when the shutdown ended; their locks end with their ttl.
    pub unconfirmed: usize,
}

impl Registry {
    /// A registry of its own, on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(&Clock::system())
    }

    /// A registry on this clock; for tests.
    #[must_use]
    pub fn with_clock(clock: &Clock) -> Self {
        Self(Arc::new(Inner {
            shared: Arc::new(Shared {
                clock: clock.clone(),
                watchdog: Arc::new(Watchdog::new(clock)),
                events: Arc::default(),
                jobs: Arc::default(),
                closing: Closing::default(),
                #[cfg(debug_assertions)]
                order: Order::default(),
            }),
            stores: RwLock::default(),
            defaults: RwLock::default(),
            trace: RwLock::default(),
            traced: AtomicBool::new(false),
            tunings: Tunings::default(),
            changes: Changes::default(),
        }))
    }

    /// The registry that the attribute uses.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Registry> = LazyLock::new(Registry::new);
        &GLOBAL
    }

    /// The registry that annotated functions use on this thread: the global one, unless a test has its own.
    #[cfg(not(feature = "testing"))]
    pub(crate) fn here() -> Self {
        Self::global().clone()
    }

    /// Installs the backend that `opening` gives, for the facade, which opens stores by URL.
    ///
    /// # Errors
    /// As [`install`](Self::install); else the error of `opening`.
    #[doc(hidden)]
    pub async fn install_opened(
        &self,
        name: &str,
        opening: impl Future<Output = Result<Arc<dyn Backend>>> + Send + 'static,
    ) -> Result<()> {
        self.check_free(name)?;
        // Outside of any runtime on our thread, as requests are.
        let opened = match here() {
            Some(_) => opening.await,
            None => background()?.run(opening).await.flatten(),
        };
        self.install_shared(name, opened.map_err(|error| error.with_backend(name))?)
    }

    /// The clock by which it counts.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.shared.clock
    }

    /// The backend of this name, or the default.
    ///
    /// # Errors
    /// [`ErrorKind::BackendNotRegistered`].
    #[doc(hidden)]
    pub fn backend(&self, name: Option<&str>) -> Result<Arc<dyn Backend>> {
        Ok(self.store(name)?.backend.clone())
    }

    /// Installs a backend under a name.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyRegistered`]; [`ErrorKind::ConfigInvalid`] for an empty name or one with control characters.
    pub fn install(&self, name: &str, backend: impl Backend) -> Result<()> {
        self.install_shared(name, Arc::new(backend))
    }

    /// As [`install`](Self::install), for a backend that is shared already.
    ///
    /// # Errors
    /// As `install`.
    pub fn install_shared(&self, name: &str, backend: Arc<dyn Backend>) -> Result<()> {
        self.check_free(name)?;
        let store = Arc::new(Store::new(name, backend));
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        if stores.by_name.contains_key(name) {
            return Err(taken(name));
        }
        stores.by_name.insert(name.to_owned(), store);
        Ok(())
    }

    /// Names the backend of those locks that name none. Nothing becomes the default by itself.
    ///
    /// # Errors
    /// [`ErrorKind::BackendNotRegistered`].
    pub fn set_default(&self, name: &str) -> Result<()> {
        let store = self.store(Some(name))?;
        self.0.stores.write().unwrap_or_else(PoisonError::into_inner).default = Some(store);
        Ok(())
    }

    /// Sets the defaults of all locks that do not say otherwise. Locks already held keep theirs.
    ///
    /// Calls go on with the old ones meanwhile; another change, also of [`tune`](Self::tune), waits for this one.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] with the field that cannot be; [`ErrorKind::WouldDeadlock`] inside of a change of
    /// this registry.
    pub fn configure(&self, change: impl FnOnce(&mut Defaults)) -> Result<()> {
        let _one = self.0.changes.begin()?;
        let mut changed = (*self.defaults()).clone();
        change(&mut changed);
        changed.check()?;
        *self.0.defaults.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(changed);
        Ok(())
    }

    /// Installs an observer of what happens to every lock.
    pub fn observe(&self, observer: impl Observer) {
        self.0.shared.events.add(Arc::new(observer));
    }

    /// How many times observers have panicked, and how many events they were too slow for.
    #[must_use]
    pub fn observer_trouble(&self) -> (u64, u64) {
        self.0.shared.events.trouble()
    }

    /// Sets where the trace id in a lock's note comes from. Without it, the id of the present `tracing` span is taken.
    pub fn trace_with(&self, trace: impl Fn() -> Option<String> + Send + Sync + 'static) {
        *self.0.trace.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(trace));
        self.0.traced.store(true, Ordering::Release);
    }

    /// A lock on `key`, to be acquired by hand; see [`Lock`].
    #[track_caller]
    pub fn lock(&self, key: impl Into<Key>) -> Lock {
        Lock::new(self.clone(), key.into())
    }

    /// Several locks, to be acquired together, all or none; see [`LockAll`].
    #[track_caller]
    pub fn lock_all(&self, keys: impl IntoIterator<Item = impl Into<Key>>) -> LockAll {
        Lock::new(self.clone(), keys.into_iter().map(Into::into).collect())
    }

    /// Stops granting, waits until what is held was released, and closes the backends.
    ///
    /// Waiters get [`ErrorKind::ShutDown`] at once. At the deadline the bodies that still run are told
    /// [`ErrorKind::Lost`] and their locks are given back.
    ///
    /// In a child after `fork` it does nothing, at once: what is held there is the parent's.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        if is_forked() {
            return ShutdownReport { cut_off: 0, unconfirmed: 0 };
        }
        let shared = &self.0.shared;
        let until = shared.clock.now().after(deadline);
        shared.closing.close(&shared.clock);
        // In this order: an acquisition that is over now has its hold in the table.
        shared.until(until, || shared.jobs.none() && shared.watchdog.holds().is_empty()).await;
        let mut cut_off = 0;
        for tenure in shared.watchdog.holds() {
            if tenure.mark_lost(LossCause::Shutdown) {
                cut_off += 1;
                let held = shared.clock.now().since(tenure.since);
                shared.events.send(&tenure.label, crate::Event::Lost { cause: LossCause::Shutdown, held });
                release::later(tenure);
            }
        }
        // The last releases get a moment even when the deadline was nothing.
        let grace = shared.clock.now().after(Duration::from_millis(500)).max(until);
        shared.until(grace, || shared.jobs.none()).await;
        let unconfirmed = shared.jobs.give_up();
        let stores: Vec<_> = {
            let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
            stores.default = None;
            std::mem::take(&mut stores.by_name).into_values().collect()
        };
        for store in stores {
            // A store that does not answer must not hold up the end of the process.
            let closing =
                store.ask(&shared.clock, Duration::from_secs(1), &(), |backend, ()| Box::pin(backend.close().map(Ok)));
            let _ = closing.await;
        }
        ShutdownReport { cut_off, unconfirmed }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.0.changes
    }

    pub(crate) fn tunings(&self) -> &Tunings {
        &self.0.tunings
    }

    /// The defaults of all locks that do not say otherwise.
    #[must_use]
    pub fn defaults(&self) -> Arc<Defaults> {
        self.0.defaults.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.0.shared.closing.is_closed() { Err(shut_down()) } else { Ok(()) }
    }

    pub(crate) fn trace(&self) -> Option<String> {
        let traced = self.0.traced.load(Ordering::Acquire);
        let hook = || self.0.trace.read().unwrap_or_else(PoisonError::into_inner).clone();
        match traced.then(hook).flatten() {
            // The user's: what it gives is for people to read, and its panic is no reason not to lock.
            Some(hook) => catch_unwind(AssertUnwindSafe(|| hook())).ok().flatten(),
            None => tracing::Span::current().id().map(|id| format!("{:x}", id.into_u64())),
        }
    }

    /// The store of this name, or the default.
    pub(crate) fn store(&self, name: Option<&str>) -> Result<Arc<Store>> {
        let stores = self.0.stores.read().unwrap_or_else(PoisonError::into_inner);
        let found = match name {
            Some(name) => stores.by_name.get(name),
            None => stores.default.as_ref(),
        };
        if let Some(store) = found {
            return Ok(store.clone());
        }
        self.check_open()?;
        let known: Vec<String> = stores.by_name.keys().cloned().collect();
        let list = if known.is_empty() { "none is".to_owned() } else { format!("installed: {}", known.join(", ")) };
        #[cfg(feature = "testing")]
        if Arc::ptr_eq(&self.0, &Self::global().0) && crate::entered::is_in_use() {
            let text = format!(
                "no backend is installed ({list}), and this thread has entered no test kit, although this process has one: \
                 wrap what is spawned on another thread, task or thread, in `kit.scope(…)`"
            );
            return Err(Error::new(ErrorKind::BackendNotRegistered { known }, text));
        }
        let message = match name {
            Some(name) => format!(
                "no backend is installed under the name {name:?} ({list}); call dlock::connect({name:?}, url) at the start"
            ),
            None => {
                format!("this lock names no backend and there is no default ({list}); call dlock::set_default(name)")
            }
        };
        Err(Error::new(ErrorKind::BackendNotRegistered { known }, message))
    }

    fn check_free(&self, name: &str) -> Result<()> {
        self.check_open()?;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Error::config(
                "name",
                "a backend's name has at least one character, and no control characters",
            ));
        }
        if self.0.stores.read().unwrap_or_else(PoisonError::into_inner).by_name.contains_key(name) {
            return Err(taken(name));
        }
        Ok(())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores = self.0.stores.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Registry").field("backends", &stores.by_name.values().collect::<Vec<_>>()).finish()
    }
}

fn taken(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyRegistered, format!("a backend is installed under the name {name:?} already"))
}
