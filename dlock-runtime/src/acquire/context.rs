//! The registry as the engine sees it: its stores by name, its defaults and its settings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use dlock_contract::engine::caught;
use dlock_contract::{Backend, Error, ErrorKind, Result};
use dlock_store::{Clock, drop_elsewhere};
use futures::future::{self, BoxFuture};

use crate::events::shutdown::shut_down;
#[cfg(debug_assertions)]
use crate::guard::lock_order::Order;
use crate::hold::circuit_breaker::CircuitBreaker;
use crate::hold::store::Store;
use crate::hold::tenure::Shared;
use crate::options::tunings::{Changes, Tunings};
use crate::options::{Defaults, Options};

/// A registry, as the engine sees it.
#[derive(Clone)]
pub(crate) struct Context(Arc<Inner>);

// Aligned: see `Shared`.
#[repr(align(128))]
struct Inner {
    shared: Arc<Shared>,
    stores: RwLock<Stores>,
    defaults: RwLock<Arc<Defaults>>,
    trace: RwLock<Option<Arc<Trace>>>,
    /// Most programs have no such hook, and pay one load.
    has_trace_hook: AtomicBool,
    tunings: Tunings,
    changes: Changes,
    #[cfg(debug_assertions)]
    order: Order,
}

pub(crate) type Trace = dyn Fn() -> Option<String> + Send + Sync;

#[derive(Default)]
struct Stores {
    by_name: BTreeMap<String, Found>,
    default: Option<Found>,
    /// Why stores could not be opened, by the names that they were to have.
    unopened: BTreeMap<String, Error>,
}

/// A store under its name in a registry.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Open(Arc<Store>),
    Lazy(Arc<LazyStore>),
}

/// A store that was not opened yet.
pub(crate) struct LazyStore {
    pub(crate) name: Arc<str>,
    pub(super) open: Box<Open>,
    /// The opening that is under way.
    pub(super) opening: Mutex<Option<Opening>>,
    pub(super) breaker: CircuitBreaker,
}

/// How a store is opened. The context is given, since a store may be made of others.
pub(crate) type Open = dyn Fn(Context) -> BoxFuture<'static, Result<Arc<dyn Backend>>> + Send + Sync;

pub(super) type Opening = future::Shared<BoxFuture<'static, std::result::Result<Arc<Store>, Arc<Error>>>>;

impl Context {
    pub(crate) fn with_clock(clock: &Clock) -> Self {
        Self(Arc::new(Inner {
            shared: Arc::new(Shared::new(clock)),
            stores: RwLock::default(),
            defaults: RwLock::default(),
            trace: RwLock::default(),
            has_trace_hook: AtomicBool::new(false),
            tunings: Tunings::default(),
            changes: Changes::default(),
            #[cfg(debug_assertions)]
            order: Order::default(),
        }))
    }

    pub(crate) fn global() -> &'static Self {
        static GLOBAL: LazyLock<Context> = LazyLock::new(|| Context::with_clock(&Clock::system()));
        &GLOBAL
    }

    pub(crate) fn install(&self, name: &str, backend: Arc<dyn Backend>) -> Result<()> {
        self.add(name, Found::Open(self.0.shared.store(name, backend)))
    }

    /// Installs a store that is opened at its first use.
    pub(crate) fn install_lazy(&self, name: &str, open: Box<Open>) -> Result<()> {
        self.add(name, Found::Lazy(Arc::new(LazyStore::new(name, open))))
    }

    fn add(&self, name: &str, found: Found) -> Result<()> {
        self.check_free(name)?;
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        if stores.by_name.contains_key(name) {
            return Err(taken(name));
        }
        stores.unopened.remove(name);
        stores.by_name.insert(name.to_owned(), found);
        Ok(())
    }

    /// Puts a store in the place of the one that was not opened yet.
    pub(crate) fn install_opened(&self, lazy: &Arc<LazyStore>, backend: Arc<dyn Backend>) -> Result<Arc<Store>> {
        let store = self.0.shared.store(&lazy.name, backend);
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        let is_of_lazy = |found: &Found| matches!(found, Found::Lazy(other) if Arc::ptr_eq(other, lazy));
        let Some(found) = stores.by_name.get_mut(&*lazy.name).filter(|found| is_of_lazy(found)) else {
            return Err(shut_down());
        };
        *found = Found::Open(store.clone());
        if let Some(default) = stores.default.as_mut().filter(|default| is_of_lazy(default)) {
            *default = Found::Open(store.clone());
        }
        stores.unopened.remove(&*lazy.name);
        Ok(store)
    }

    /// A store could not be opened.
    pub(crate) fn note_opening_failure(&self, name: &str, error: &Error) {
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.unopened.insert(name.to_owned(), error.again());
    }

    /// Why the store of this name could not be opened. Without a name: the only one that was to be installed.
    pub(crate) fn opening_error(&self, name: Option<&str>) -> Option<Error> {
        let stores = self.0.stores.read().unwrap_or_else(PoisonError::into_inner);
        let (name, error) = match name {
            Some(name) => stores.unopened.get_key_value(name),
            None if stores.by_name.is_empty() && stores.unopened.len() == 1 => stores.unopened.first_key_value(),
            None => None,
        }?;
        Some(error.again().with_backend(name))
    }

    pub(crate) fn set_default(&self, name: &str) -> Result<()> {
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        let found = self.find_in(&stores, Some(name))?;
        stores.default = Some(found);
        Ok(())
    }

    /// Takes one store out.
    pub(crate) fn remove(&self, name: &str) -> Option<Found> {
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.default.take_if(|default| default.name() == name);
        stores.by_name.remove(name)
    }

    /// Takes all stores out, at a shutdown.
    pub(crate) fn take_stores(&self) -> Vec<Arc<Store>> {
        let mut stores = self.0.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.default = None;
        let opened = |found| match found {
            Found::Open(store) => Some(store),
            Found::Lazy(_) => None,
        };
        std::mem::take(&mut stores.by_name).into_values().filter_map(opened).collect()
    }

    /// The installed stores, by name.
    pub(crate) fn stores(&self) -> Vec<Found> {
        self.0.stores.read().unwrap_or_else(PoisonError::into_inner).by_name.values().cloned().collect()
    }

    pub(crate) fn set_defaults(&self, defaults: Defaults) {
        *self.0.defaults.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(defaults);
    }

    pub(crate) fn set_trace(&self, trace: Arc<Trace>) {
        *self.0.trace.write().unwrap_or_else(PoisonError::into_inner) = Some(trace);
        self.0.has_trace_hook.store(true, Ordering::Release);
    }

    /// The options of a site, with the settings from outside of the code.
    pub(crate) fn tuned(&self, name: &str, options: Options) -> Options {
        self.0.tunings.get(name).map_or(options, |tuning| options.tuned(tuning))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// The order in which locks are nested.
    #[cfg(debug_assertions)]
    pub(crate) fn order(&self) -> &Order {
        &self.0.order
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.0.changes
    }

    pub(crate) fn tunings(&self) -> &Tunings {
        &self.0.tunings
    }

    pub(crate) fn defaults(&self) -> Arc<Defaults> {
        self.0.defaults.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.0.shared.shutdown.check()
    }

    pub(crate) fn trace(&self) -> Option<String> {
        let has_trace_hook = self.0.has_trace_hook.load(Ordering::Acquire);
        let hook = || self.0.trace.read().unwrap_or_else(PoisonError::into_inner).clone();
        match has_trace_hook.then(hook).flatten() {
            // The hook and the layers are the user's. Their result is for people to read, and their panic must not stop the lock.
            Some(hook) => caught(|| hook()).flatten(),
            None => caught(|| tracing::Span::current().id()).flatten().map(|id| format!("{:x}", id.into_u64())),
        }
    }

    /// The store under this name, open or not. Without a name: the default, or the only store.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Found> {
        self.find_in(&self.0.stores.read().unwrap_or_else(PoisonError::into_inner), name)
    }

    fn find_in(&self, stores: &Stores, name: Option<&str>) -> Result<Found> {
        let found = match name {
            Some(name) => stores.by_name.get(name),
            None => stores.default.as_ref().or_else(|| {
                let mut all = stores.by_name.values();
                all.next().filter(|_| all.next().is_none())
            }),
        };
        if let Some(found) = found {
            return Ok(found.clone());
        }
        self.check_open()?;
        let known: Vec<String> = stores.by_name.keys().cloned().collect();
        let list = if known.is_empty() { "none is".to_owned() } else { format!("installed: {}", known.join(", ")) };
        #[cfg(feature = "testing")]
        if Arc::ptr_eq(&self.0, &Self::global().0) && crate::acquire::test_kits::is_in_use() {
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
            None if known.is_empty() => {
                "no backend is installed; call dlock::connect(name, url) at the start".to_owned()
            }
            None => format!(
                "this lock names no backend, and there are several ({list}): write `backend = \"…\"`, or call \
                 dlock::set_default(name) at the start"
            ),
        };
        Err(Error::new(ErrorKind::BackendNotRegistered { known }, message))
    }

    pub(crate) fn check_free(&self, name: &str) -> Result<()> {
        self.check_open()?;
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Error::config(
                "name",
                "the name of a store must have at least one character and no control characters",
            ));
        }
        if self.0.stores.read().unwrap_or_else(PoisonError::into_inner).by_name.contains_key(name) {
            return Err(taken(name));
        }
        Ok(())
    }
}

impl Found {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Open(store) => &store.name,
            Self::Lazy(lazy) => &lazy.name,
        }
    }
}

impl LazyStore {
    pub(crate) fn new(name: &str, open: Box<Open>) -> Self {
        Self { name: name.into(), open, opening: Mutex::default(), breaker: CircuitBreaker::default() }
    }
}

impl fmt::Debug for LazyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LazyStore({})", self.name)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // An opening on our thread may have the last reference to a registry.
        drop_elsewhere(self.trace.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn taken(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyRegistered, format!("a store is already installed under the name {name:?}"))
}
