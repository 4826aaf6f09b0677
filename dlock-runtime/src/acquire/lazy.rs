//! A store that is opened at its first use: a program may start while its store is down.
//!
//! All callers wait for one opening, which goes on on our thread when they are gone. One that fails is a failed request
//! like any other: the next use opens anew, and the store's circuit breaker bounds how often.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::{Backend, Error, Result};
use dlock_store::background;
use dlock_store::engine::{guarded, not_forked};
use futures::FutureExt;
use futures::future::{self, BoxFuture, Shared};

use crate::acquire::context::Context;
use crate::hold::circuit_breaker::CircuitBreaker;
use crate::hold::store::Store;

/// How a store is opened. The context is given, since a store may be made of others.
pub(crate) type Open = dyn Fn(Context) -> BoxFuture<'static, Result<Arc<dyn Backend>>> + Send + Sync;

type Opening = Shared<BoxFuture<'static, std::result::Result<Arc<Store>, Arc<Error>>>>;

/// A store that was not opened yet.
pub(crate) struct LazyStore {
    pub(crate) name: Arc<str>,
    open: Box<Open>,
    /// The opening that is under way.
    opening: Mutex<Option<Opening>>,
    breaker: CircuitBreaker,
}

impl LazyStore {
    pub(crate) fn new(name: &str, open: Box<Open>) -> Self {
        Self { name: name.into(), open, opening: Mutex::default(), breaker: CircuitBreaker::default() }
    }

    /// Opens it, unless another caller does so already, and waits at most this long.
    pub(crate) async fn opened(self: &Arc<Self>, context: &Context, bound: Duration) -> Result<Arc<Store>> {
        let clock = &context.shared().clock;
        let opening = self.begin(context)?;
        match clock.timeout_at(clock.now().after(bound), guarded(opening)).await {
            Some(opened) => opened.map_err(|error| error.again()),
            None => {
                Err(Error::outage(format!("the store is opened at its first use, and was not open within {bound:?}"))
                    .never_sent())
            }
        }
    }

    fn begin(self: &Arc<Self>, context: &Context) -> Result<Opening> {
        // A child after `fork` has no thread that runs the parent's opening.
        not_forked()?;
        let mut under_way = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // An opening that has ended but is still here has panicked.
        if let Some(opening) = under_way.as_ref().filter(|opening| opening.peek().is_none()) {
            return Ok(opening.clone());
        }
        // It may have been opened since the caller found it unopened.
        if let Ok(Found::Open(store)) = context.find(Some(&self.name)) {
            return Ok(future::ready(Ok(store)).boxed().shared());
        }
        self.breaker.admit(|| context.shared().clock.now())?;
        let (store, context) = (self.clone(), context.clone());
        let opening = background()?.run(async move { store.open(&context).await });
        let opening = opening.map(|opened| opened.flatten().map_err(Arc::new)).boxed().shared();
        *under_way = Some(opening.clone());
        Ok(opening)
    }

    async fn open(self: Arc<Self>, context: &Context) -> Result<Arc<Store>> {
        let opened = match (self.open)(context.clone()).await {
            Ok(backend) => match context.install_opened(&self, backend.clone()) {
                Ok(store) => Ok(store),
                // The registry was shut down meanwhile.
                Err(error) => {
                    backend.close().await;
                    Err(error)
                }
            },
            Err(error) => {
                context.opening_failed(&self.name, &error);
                self.breaker.failed(&self.name, &error, context.shared().clock.now());
                Err(error.never_sent())
            }
        };
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = None;
        opened
    }
}

impl fmt::Debug for LazyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LazyStore({})", self.name)
    }
}

impl Context {
    /// The store of this name, or the default. A store that was not opened yet is opened, within this time.
    pub(crate) async fn opened(&self, name: Option<&str>, bound: Duration) -> Result<Arc<Store>> {
        match self.find(name)? {
            Found::Open(store) => Ok(store),
            Found::Lazy(lazy) => {
                Box::pin(lazy.opened(self, bound)).await.map_err(|error| error.with_backend(&lazy.name))
            }
        }
    }
}

/// A store under its name in a registry.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Open(Arc<Store>),
    Lazy(Arc<LazyStore>),
}

impl Found {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Open(store) => &store.name,
            Self::Lazy(lazy) => &lazy.name,
        }
    }
}

#[cfg(test)]
mod tests;
