//! The session of one claim in Consul.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use dlock_contract::{BootInstant, Session};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::lock::name::Name;
use crate::lock::watch::Watch;

/// The session that one claim may have in the store. The requests of a claim run one after the other.
pub(crate) struct Place {
    pub(crate) name: Arc<Name>,
    pub(crate) lease: Arc<Mutex<Option<Lease>>>,
}

/// A turn that has come, or will come in the order of the calls.
pub(crate) type Turn = Pin<Box<dyn Future<Output = OwnedMutexGuard<Option<Lease>>> + Send>>;

impl Place {
    pub(crate) fn new(name: Name) -> Self {
        Self { name: Arc::new(name), lease: Arc::default() }
    }

    /// The next turn among the requests of this place. It is taken by the call, and not by the task that does the request:
    /// an abandon is called on our thread, and its task may run before one that another thread has spawned.
    pub(crate) async fn turn(&self) -> Turn {
        let mut waiting = Box::pin(self.lease.clone().lock_owned());
        match futures::poll!(waiting.as_mut()) {
            Poll::Ready(lease) => Box::pin(ready(lease)),
            Poll::Pending => waiting,
        }
    }
}

/// A session, which one claim alone uses: a session gets what it holds once more.
#[derive(Clone)]
pub(crate) struct Lease {
    pub(crate) session: String,
    /// When the last request left that the server has answered by keeping the session alive.
    pub(crate) confirmed: BootInstant,
}

/// The session of a hold.
pub(crate) struct Grant {
    pub(crate) name: Arc<Name>,
    pub(crate) session: String,
    /// A permit is another key.
    pub(crate) is_permit: bool,
    pub(crate) watch: Arc<Watch>,
}

impl Session for Grant {
    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        self.watch.listen(self.session.clone())
    }
}
