//! The registry: the backends of a process by name, its defaults, and the shutdown.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

#[cfg(doc)]
use dlock_contract::ErrorKind;
use dlock_contract::{Backend, Error, Health, Key, LockKey, LossCause, Result};
use dlock_store::{Clock, background, is_forked, line};
use futures::FutureExt;

use crate::acquire::context::Context;
use crate::acquire::context::Found;
use crate::events::lines::line_of;
use crate::events::observer_list::Observer;
use crate::events::store_event::Operation;
use crate::hold::store::{LONGEST_REQUEST, Store};
use crate::options::Defaults;

/// The stores of a process by name. There is one global registry, which the attribute uses; a test may have its own.
#[derive(Clone)]
pub struct Registry(Context);

/// The outcome of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Holds that had not ended by the deadline. Their bodies got `Lost`; a body that ended then has released its lock.
    pub cut_off: usize,
    /// Holds whose body still ran, or whose guard was still alive, when the shutdown ended: functions that are not async,
    /// bodies that are not polled, and bodies with `on_lost = continue`. Some of them may be lost by `max_hold` since before
    /// the shutdown; the others are counted in `cut_off`. Each lock is free when its body ends, and when its ttl ends at the
    /// latest. It is not given away before, because the body may work under it.
    pub left_to_ttl: usize,
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
        Self(Context::with_clock(clock))
    }

    /// The registry that the attribute uses.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Registry> = LazyLock::new(|| Registry(Context::global().clone()));
        &GLOBAL
    }

    pub(super) const fn of(context: Context) -> Self {
        Self(context)
    }

    /// Takes a store out again that was installed for a start that failed. Its connections are closed later.
    pub(super) fn uninstall(&self, name: &str) {
        let (Some(Found::Open(store)), Ok(background)) = (self.0.remove(name), background()) else { return };
        // A call may have used it meanwhile. Then its connections end with that call's hold.
        if self.0.shared().renewals.holds().iter().all(|tenure| !Arc::ptr_eq(&tenure.store, &store)) {
            background.spawn(async move { close(&store).await });
        }
    }

    /// The clock by which it counts.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.shared().clock
    }

    /// The store of this name, or of the default: its [profile](Backend::profile) says what it promises, and
    /// [`host`](Backend::host) where it is. It is opened if it was not opened yet.
    ///
    /// Take locks by [`lock`](Self::lock): a store alone bounds no request, and neither renews nor waits.
    ///
    /// # Errors
    /// [`ErrorKind::BackendNotRegistered`]; why it could not be opened.
    pub async fn backend(&self, name: Option<&str>) -> Result<Arc<dyn Backend>> {
        Ok(self.0.opened(name, LONGEST_REQUEST).await?.backend.clone())
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
        self.0.install(name, backend)
    }

    /// Sets the backend of the locks that name none. It is needed if several backends are installed: otherwise such a
    /// lock is an error. The only installed backend is the default.
    ///
    /// # Errors
    /// [`ErrorKind::BackendNotRegistered`].
    pub fn set_default(&self, name: &str) -> Result<()> {
        self.0.set_default(name)
    }

    /// The names of the installed backends, also of those that were not opened yet; in the order of the alphabet.
    ///
    /// ```
    /// # fn main() -> Result<(), dlock_runtime::Error> {
    /// let registry = dlock_runtime::Registry::new();
    /// registry.install("main", dlock_memory::Memory::new())?;
    /// assert_eq!(registry.installed(), ["main"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn installed(&self) -> Vec<String> {
        self.0.stores().iter().map(|found| found.name().to_owned()).collect()
    }

    /// Asks the store of an installed backend whether it takes locks now: for a readiness probe.
    ///
    /// A few requests, bounded by 5 s; nothing stays locked. A store that was not opened yet is opened. The answer has
    /// the version and the role where the store reports them, and findings that make a promise smaller.
    ///
    /// # Errors
    /// [`ErrorKind::BackendNotRegistered`]; [`ErrorKind::Outage`] if the store does not answer; else why it cannot be opened
    /// or takes no locks, such as [`ErrorKind::NotPrimary`] or [`ErrorKind::PermissionDenied`], or none of the namespace of
    /// [`defaults`](Self::defaults), such as [`ErrorKind::SchemaMismatch`].
    pub async fn ready(&self, name: &str) -> Result<Health> {
        let store = self.0.opened(Some(name), LONGEST_REQUEST).await?;
        let named = |error: Error| error.with_backend(&store.name);
        background().map_err(named)?;
        let key = LockKey::new(&self.defaults().namespace, Key::text("ready"))?;
        let asking = store.ask(Operation::Ready, LONGEST_REQUEST, &key, |backend, key| {
            Box::pin(async move {
                let health = backend.ready().await?;
                backend.admits(key).await.map(|()| health)
            })
        });
        let answer = asking.await;
        store.findings.note_health(&answer);
        answer.map_err(named)
    }

    /// Sets the defaults of all locks that do not say otherwise. Locks already held keep theirs.
    ///
    /// Calls go on with the old ones meanwhile; another change, also of [`tune`](Self::tune), waits for this one.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] with the field that cannot be, or if a site that is [tuned](Self::tune) contradicts the
    /// new defaults; then the old ones stay. [`ErrorKind::WouldDeadlock`] inside of a change of this registry.
    pub fn configure(&self, change: impl FnOnce(&mut Defaults)) -> Result<()> {
        let _change = self.0.changes().begin()?;
        let mut changed = (*self.0.defaults()).clone();
        change(&mut changed);
        changed.check()?;
        self.check_tunings(&changed)?;
        self.0.set_defaults(changed);
        Ok(())
    }

    /// Installs an observer of the events of every lock.
    pub fn observe(&self, observer: impl Observer) {
        self.0.shared().events.add(Arc::new(observer));
    }

    /// The defaults of all locks that do not say otherwise.
    #[must_use]
    pub fn defaults(&self) -> Arc<Defaults> {
        self.0.defaults()
    }

    pub(crate) const fn context(&self) -> &Context {
        &self.0
    }

    /// How many times observers have panicked, and how many events they were too slow for.
    #[must_use]
    pub fn observer_trouble(&self) -> (u64, u64) {
        self.0.shared().events.trouble()
    }

    /// Sets where the trace id in a lock's note comes from. Without it, the id of the present `tracing` span is taken.
    pub fn trace_with(&self, trace: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.0.set_trace(Arc::new(trace));
    }

    /// Stops granting, waits until the holds are released, and closes the backends.
    ///
    /// Waiters get [`ErrorKind::ShutDown`] at once. At the deadline the bodies that still run get [`ErrorKind::Lost`],
    /// and the renewal of their locks ends. An async body is dropped at its next await, and its lock is released then.
    /// A body that runs on keeps its lock until it ends or the ttl ends ([`ShutdownReport::left_to_ttl`]), and its
    /// backend is not closed.
    ///
    /// In a child after `fork` it returns at once and does nothing, because the holds are the parent's.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        if is_forked() {
            return ShutdownReport { cut_off: 0, left_to_ttl: 0, unconfirmed: 0 };
        }
        let shared = self.0.shared();
        let until = shared.clock.now().after(deadline);
        shared.shutdown.close(&shared.clock);
        // In this order: an acquisition that has ended by now has its hold in the schedule.
        shared.until(until, || shared.jobs.none() && shared.renewals.holds().is_empty()).await;
        let cut_off = shared.renewals.holds().iter().filter(|tenure| tenure.lose(LossCause::Shutdown)).count();
        // Also those that `max_hold` has ended before.
        let mut left = shared.left_to_lease();
        left.retain(|tenure| shared.clock.now() < tenure.validity().deadline());
        // The last bodies and releases get a moment, even if the deadline is zero.
        let grace = shared.clock.now().after(Duration::from_millis(500)).max(until);
        // In this order: a release that has begun is among the jobs.
        let all_are_released = || left.iter().all(|tenure| tenure.is_being_released()) && shared.jobs.none();
        shared.until(grace, all_are_released).await;
        left.retain(|tenure| !tenure.is_being_released());
        // No warning: the report counts them.
        for tenure in &left {
            let label = tenure.label.clone();
            line(move || {
                line_of!(info, label, "the lock is left to its ttl: its body or its guard outlives the shutdown");
            });
        }
        let unconfirmed = shared.jobs.give_up();
        let in_use = |store: &Arc<Store>| left.iter().any(|tenure| Arc::ptr_eq(&tenure.store, store));
        // Where a lock lives in a connection, closing the store would give it away under its body.
        for store in self.0.take_stores().into_iter().filter(|store| !in_use(store)) {
            close(&store).await;
        }
        shared.events.end();
        ShutdownReport { cut_off, left_to_ttl: left.len(), unconfirmed }
    }
}

async fn close(store: &Store) {
    // A store that does not answer must not hold up the end of the process.
    let _ =
        store.ask(Operation::Close, Duration::from_secs(1), &(), |backend, ()| Box::pin(backend.close().map(Ok))).await;
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("backends", &self.0.stores()).finish()
    }
}

/// Makes the annotated functions of this thread use a registry.
#[cfg(feature = "testing")]
#[must_use]
pub fn enter(registry: &Registry) -> crate::acquire::thread_registry::Entered {
    crate::acquire::thread_registry::enter(&registry.0)
}
