//! The reference store as the suite sees it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dlock::{Clock, Error, LockKey, Result};
use dlock_conformance::{Outage, Store};
use dlock_contract::{Backend, Hold};
use futures::future::BoxFuture;

use crate::client::Client;
use crate::lies::Lie;
use crate::server::{Server, Setup};

/// The reference store as the suite sees it.
pub(crate) struct Reference {
    server: Arc<Server>,
    /// The server of some clients, for lies: those that cannot reach the other one ("try Redis, else MySQL"), or those
    /// whose settings differ.
    another: Option<Arc<Server>>,
}

impl Reference {
    pub(crate) fn new(setup: Setup, lie: Option<Lie>) -> Self {
        let another = matches!(lie, Some(Lie::TriesAnother | Lie::SettingsNameLocks)).then(|| Server::new(setup, lie));
        Self { server: Server::new(setup, lie), another }
    }

    /// A client that may get the locks of another server, by this lie.
    fn open_special(&self, lie: Lie, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let another = self.another.as_ref().filter(|server| server.tells(lie));
        let client: Arc<dyn Backend> = Arc::new(Client::new(another.unwrap_or(&self.server).clone(), clock));
        Box::pin(async { Ok(client) })
    }
}

impl Store for Reference {
    fn name(&self) -> String {
        self.server.setup.name.into()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let client: Arc<dyn Backend> = Arc::new(Client::new(self.server.clone(), clock));
        Box::pin(async { Ok(client) })
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async { Ok(self.server.leftovers(key)) })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            self.server.evict(key);
            Ok(())
        }))
    }

    fn work<'a>(&'a self, hold: &'a Hold) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            self.server.state().working.insert(hold.claim.owner);
            Ok(())
        }))
    }

    fn is_final<'a>(&'a self, hold: &'a Hold) -> Option<BoxFuture<'a, Result<bool>>> {
        Some(Box::pin(async { Ok(self.server.state().settled.contains(&hold.claim.owner)) }))
    }

    fn outage(&self, outage: Outage) -> Option<BoxFuture<'_, Result<Box<dyn Any + Send>>>> {
        struct Ends(Arc<Server>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.set_outage(None);
            }
        }
        Some(Box::pin(async move {
            self.server.set_outage(Some(outage));
            Ok(Box::new(Ends(self.server.clone())) as Box<dyn Any + Send>)
        }))
    }

    fn open_to_a_part(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        if !self.server.setup.parts {
            return None;
        }
        Some(self.open_special(Lie::TriesAnother, clock))
    }

    fn open_with_other_settings(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        Some(self.open_special(Lie::SettingsNameLocks, clock))
    }

    fn open_in_another_way(&self, clock: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        let client: Arc<dyn Backend> = Arc::new(Client::in_another_way(self.server.clone(), clock));
        Some(Box::pin(async { Ok(client) }))
    }

    fn restart(&self) -> Option<BoxFuture<'_, Result<()>>> {
        Some(Box::pin(async {
            self.server.restart();
            Ok(())
        }))
    }
}

/// The correct store behind a network that loses some of the first requests to open it, as a busy machine does.
pub(crate) struct LateAtFirst {
    pub(crate) store: Reference,
    /// So many requests are lost.
    pub(crate) lost: AtomicU32,
}

impl Store for LateAtFirst {
    fn name(&self) -> String {
        self.store.name()
    }

    fn open(&self, clock: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        let less = |lost: u32| lost.checked_sub(1);
        if self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Box::pin(async { Err(Error::outage("the server is late")) });
        }
        self.store.open(clock)
    }

    fn leftovers<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        self.store.leftovers(key)
    }
}
