//! The request of one call: where it was made, its options, its store.

use std::borrow::Cow;
use std::sync::Arc;

use dlock_contract::{Error, ErrorKind};
use dlock_store::engine::SoleThread;

use crate::acquire::callers_thread;
use crate::acquire::context::Context;
use crate::acquire::thread_registry;
use crate::guard::scope::Enclosing;
use crate::options::Options;
use crate::site::{Call, CallSite, Keys, Label, LockOfLabel, Site, StoreLabel};

/// The request of one call.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) context: Context,
    pub(crate) call_site: CallSite,
    pub(crate) options: Options,
    pub(crate) backend: Option<Cow<'static, str>>,
    /// Instead of the registry's; an election may have one.
    pub(crate) namespace: Option<Box<str>>,
    /// The name in the note, if it is not that of the site.
    pub(crate) noted: Option<Box<str>>,
    /// Present if the caller's thread sleeps meanwhile.
    pub(crate) parked: Option<Box<Parked>>,
    /// Present if the key is one of several: the holds of the enclosing calls in their store.
    pub(crate) enclosing: Option<Arc<Enclosing>>,
}

impl Request {
    pub(crate) const fn new(
        context: Context,
        call_site: CallSite,
        options: Options,
        backend: Option<Cow<'static, str>>,
    ) -> Self {
        Self { context, call_site, options, backend, namespace: None, noted: None, parked: None, enclosing: None }
    }

    /// The request of an annotated function in one call.
    pub(crate) fn of_site(site: &'static Site, call: &Call) -> Self {
        let context = thread_registry::here();
        let options = context.tuned(site.name, site.options.said_by_call(call.ttl, call.wait));
        let backend = call.backend.clone().or(site.backend.map(Into::into));
        Self::new(context, CallSite::Site(site), options, backend)
    }

    /// The label of the call before its store was asked: with the first key, and the name of the store as it was written.
    pub(crate) fn label(&self, keys: &Keys) -> Label {
        let key = match keys {
            Keys::One(key) => Some(key),
            Keys::Several(keys) => keys.first(),
        };
        let backend = self.backend.as_deref().unwrap_or_default();
        let store = Arc::new(StoreLabel { name: backend.into(), kind: "", host: None });
        let lock = LockOfLabel::Key(key.map_or("", |key| key.0.as_str()).into());
        Label::new(self.call_site.clone(), store, &self.options, lock)
    }

    /// The caller's thread, which is the present one, sleeps until there is an answer.
    pub(crate) fn parking(mut self) -> Self {
        let sole_thread = callers_thread::blocked_by_a_caller();
        self.parked = Some(Box::new(Parked { sole_thread, trace: self.context.trace() }));
        self
    }
}

/// A caller whose thread sleeps while our thread asks for it.
#[derive(Clone)]
pub(crate) struct Parked {
    pub(crate) sole_thread: Option<SoleThread>,
    pub(crate) trace: Option<String>,
}

/// The error of a blocking call on our own thread: everything that could end the wait runs on this thread.
pub(crate) fn blocks_our_thread() -> Error {
    Error::new(
        ErrorKind::WouldDeadlock,
        "a lock was asked for on dlock's own thread, as in a waker or in a `tracing` layer, and all locks of the process \
         would wait for it; hand the work to another thread",
    )
}
