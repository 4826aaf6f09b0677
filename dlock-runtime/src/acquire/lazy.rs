//! A store that is opened at its first use: a program may start while its store is down.
//!
//! All callers wait for one opening, which goes on on our thread when they are gone. One that fails is a failed request
//! like any other: the next use opens anew, and the store's circuit breaker bounds how often.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dlock_contract::{Error, Result};
use dlock_store::background;
use dlock_store::engine::{guarded, not_forked};
use futures::FutureExt;
use futures::future;

use crate::acquire::context::{Context, Found, LazyStore, Opening};
use crate::hold::store::Store;
use crate::site::StoreLabel;

impl LazyStore {
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
                context.note_opening_failure(&self.name, &error);
                let shared = context.shared();
                if self.breaker.note_failure(&self.name, &error, shared.clock.now()) {
                    let store = StoreLabel { name: self.name.clone(), kind: "", host: None };
                    shared.events.note_failed_request(&store, &error);
                }
                Err(error.never_sent())
            }
        };
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = None;
        opened
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

#[cfg(test)]
mod tests;
