//! What one claim has in Consul: its session.

use std::sync::Arc;

use dlock_contract::{BootInstant, Session};
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use crate::lock::name::Name;
use crate::lock::watch::Watch;

/// What one claim may have in the store. Its requests run one after the other.
pub(crate) struct Place {
    pub(crate) name: Arc<Name>,
    pub(crate) lease: Mutex<Option<Lease>>,
}

impl Place {
    pub(crate) fn new(name: Name) -> Self {
        Self { name: Arc::new(name), lease: Mutex::default() }
    }
}

/// A session, which one claim alone uses: a session gets what it holds once more.
#[derive(Clone)]
pub(crate) struct Lease {
    pub(crate) session: String,
    /// When the last request left that the server has answered by keeping the session alive.
    pub(crate) confirmed: BootInstant,
}

/// What a hold lives in.
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
