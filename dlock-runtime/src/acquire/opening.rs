//! The call that opens its store first: within its wait, and with its retries.

use std::sync::Arc;

use dlock_contract::engine::KeyBuf;
use dlock_contract::{BootInstant, Result};
use dlock_values::LONGEST;

use super::acquisition::asked;
use super::wait::{attempt_bound, wait_end};
use crate::acquire::context::LazyStore;
use crate::acquire::request::Request;
use crate::events::event::Event;
use crate::hold::jitter::full_jitter;
use crate::hold::store::Store;
use crate::options::Wait;
use crate::site::{Label, LockOfLabel, StoreLabel};

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
        let since = request.context.shared().clock.now();
        match self.open_within().await {
            Ok((store, wait_ends)) => Ok(Opened { store, wait_ends, request: self.request }),
            Err(error) => {
                let store = Arc::new(StoreLabel { name: lazy.name.clone(), kind: "", host: None });
                let lock = LockOfLabel::Key(key.0.as_str().into());
                let label = Label::new(request.call_site.clone(), store, &request.options, lock);
                let error = error.with_key_or_hash(&key.0, request.options.sensitive);
                let events = &request.context.shared().events;
                let once_per = request.options.once_per.as_ref();
                let resolved = request.options.resolve(&request.context.defaults());
                // Options that contradict each other may be the error.
                let (wait, max_hold) =
                    resolved.map_or((Wait::None, LONGEST), |options| (options.wait, options.max_hold));
                events.tell_observers(&label, &asked(wait, max_hold, once_per));
                let waited = request.context.shared().clock.now().since(since);
                let event = Event::failed(&error, waited);
                events.tell(&label, &event);
                Err(error.with_backend(&lazy.name))
            }
        }
    }

    async fn open_within(&self) -> Result<(Arc<Store>, BootInstant)> {
        let context = &self.request.context;
        let shared = context.shared();
        let options = self.request.options.resolve(&context.defaults())?;
        let wait_ends = self.wait_ends.unwrap_or_else(|| wait_end(shared.clock.now(), options.wait));
        let mut failures = 0;
        loop {
            let bound = attempt_bound(&options, wait_ends, shared.clock.now());
            let opened = shared.shutdown.or(self.lazy.opened(context, bound)).await?;
            let error = match opened {
                Ok(store) => return Ok((store, wait_ends)),
                Err(error) => error,
            };
            let retry_at =
                shared.clock.now().after(full_jitter(failures, options.retry_pauses.from, options.retry_pauses.to));
            let is_last = failures >= options.retries || retry_at >= wait_ends;
            if options.wait == Wait::None || is_last || !error.is_retryable() {
                return Err(error);
            }
            failures += 1;
            shared.shutdown.or(shared.clock.sleep_until(retry_at)).await?;
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
