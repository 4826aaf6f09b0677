//! A store that is opened at its first use: a program may start while its store is down.
//!
//! All callers wait for one opening, which goes on on our thread when they are gone. One that fails is a failed request
//! like any other: the next use opens anew, and the store's circuit breaker bounds how often.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dlock_contract::engine::{KeyBuf, background, not_forked};
use dlock_contract::{Backend, BootInstant, Error, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::acquisition::SHORTEST_BOUND;
use super::wait::wait_end;
use crate::acquire::context::Context;
use crate::acquire::request::Request;
use crate::events::observe::Event;
use crate::events::shutdown::shut_down;
use crate::hold::circuit_breaker::CircuitBreaker;
use crate::hold::jitter::full_jitter;
use crate::hold::store::{Store, request_bound};
use crate::options::{Retry, Wait};
use crate::site::Label;

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

    /// Opens it, unless another caller does so already, and waits so long.
    pub(crate) async fn opened(self: &Arc<Self>, context: &Context, bound: Duration) -> Result<Arc<Store>> {
        let clock = &context.shared().clock;
        let opening = self.begin(context)?;
        match clock.timeout_at(clock.now().after(bound), opening).await {
            Some(opened) => opened.map_err(|error| error.again()),
            None => {
                Err(Error::outage(format!("the store is opened at its first use, and was not open within {bound:?}"))
                    .never_sent())
            }
        }
    }

    fn begin(self: &Arc<Self>, context: &Context) -> Result<Opening> {
        // In a child after `fork` nobody would go on with the parent's opening.
        not_forked()?;
        let mut under_way = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has ended here has panicked.
        if let Some(opening) = under_way.as_ref().filter(|opening| opening.peek().is_none()) {
            return Ok(opening.clone());
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
    /// The store of this name, or the default. One that was not opened yet is opened, which may take so long.
    pub(crate) async fn opened(&self, name: Option<&str>, bound: Duration) -> Result<Arc<Store>> {
        match self.find(name)? {
            Found::Open(store) => Ok(store),
            Found::Lazy(lazy) => {
                Box::pin(lazy.opened(self, bound)).await.map_err(|error| error.with_backend(&lazy.name))
            }
        }
    }
}

/// What a registry has under a name.
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

/// A call whose store was not opened yet.
pub(crate) struct OpensFirst {
    request: Request,
    lazy: Arc<LazyStore>,
    wait_ends: Option<BootInstant>,
}

impl OpensFirst {
    pub(crate) fn new(request: Request, lazy: Arc<LazyStore>, wait_ends: Option<BootInstant>) -> Self {
        Self { request, lazy, wait_ends }
    }

    /// Opens the store, as often as the call may meet a store that fails.
    pub(crate) async fn open(self, key: &KeyBuf) -> Result<Opened> {
        let Self { request, lazy, .. } = &self;
        match self.open_within().await {
            Ok((store, wait_ends)) => Ok(Opened { store, wait_ends, request: self.request }),
            Err(error) => {
                let label = Label::new(request.call_site.clone(), lazy.name.clone());
                request.context.shared().events.tell(&label, &Event::Failed { kind: error.kind().clone() });
                Err(error.with_key(&key.0).with_backend(&lazy.name))
            }
        }
    }

    async fn open_within(&self) -> Result<(Arc<Store>, BootInstant)> {
        let context = &self.request.context;
        let shared = context.shared();
        let options = self.request.options.resolve(&context.defaults())?;
        let wait_ends = self.wait_ends.unwrap_or_else(|| wait_end(shared.clock.now(), options.wait));
        let Retry { times, backoff } = options.retry;
        let mut failures = 0;
        loop {
            let left = wait_ends.since(shared.clock.now()).max(SHORTEST_BOUND);
            let bound = request_bound(options.ttl);
            let bound = if options.wait == Wait::None { bound } else { bound.min(left) };
            let opened = shared.shutdown.or(self.lazy.opened(context, bound)).await.ok_or_else(shut_down)?;
            let error = match opened {
                Ok(store) => return Ok((store, wait_ends)),
                Err(error) => error,
            };
            let retry_at = shared.clock.now().after(full_jitter(failures, backoff.from, backoff.to));
            let is_last = failures >= times || retry_at >= wait_ends;
            if options.wait == Wait::None || is_last || !error.is_retryable() {
                return Err(error);
            }
            failures += 1;
            shared.shutdown.or(shared.clock.sleep_until(retry_at)).await.ok_or_else(shut_down)?;
        }
    }
}

/// The store of a call is open.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) request: Request,
    /// The end of the call's wait, which began before the store was opened.
    pub(crate) wait_ends: BootInstant,
}

#[cfg(test)]
mod tests;
