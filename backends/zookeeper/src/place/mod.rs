//! The place of one claim in the queue: the state of its nodes, and the requests that make and delete them.

mod enter;
mod exchange;
mod find;
mod grant;
mod leave;
mod parents;
mod shared;
mod slots;
mod wait;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dlock_contract::{BootInstant, Session};
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use zookeeper_client::Acls;

pub(crate) use self::shared::Shared;
use crate::queue::NodeMode;
use crate::session::Lease;

/// The place of one claim in the queue. Its requests run one after the other, even if their callers do not wait for them.
pub(crate) struct Place {
    /// The path of the lock.
    pub(crate) path: String,
    /// The name of the claim's node, without the digits that the server adds.
    prefix: String,
    mode: NodeMode,
    acls: Acls<'static>,
    state: Arc<Mutex<PlaceState>>,
}

/// The knowledge that this process has of the nodes of a place.
#[derive(Debug, Default)]
pub(crate) struct PlaceState {
    pub(crate) lease: Option<Arc<Lease>>,
    pub(crate) node: Option<Node>,
    /// The permit's slot, and the token of its node.
    slot: Option<(u32, i64)>,
    /// Whether a request without an answer may have made a node.
    in_doubt: bool,
    /// Whether it has waited behind others. Then its node's transaction is older than its grant.
    waited: bool,
}

/// A node of this place, which the store has confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The transaction of the grant; before that, the transaction that made the node.
    token: i64,
    /// When the request that confirmed the node left. Set only during the attempt that sent it.
    since: Option<BootInstant>,
}

/// Access to the state of a place.
pub(crate) type StateAccess = dlock_store::StateAccess<PlaceState>;

/// The session of a hold, and the hold's nodes.
pub(crate) struct HoldSession {
    pub(crate) place: Arc<Place>,
    pub(crate) lease: Arc<Lease>,
    /// The node in the queue, and the node of the permit's slot.
    pub(crate) nodes: Vec<String>,
    /// The permit's slot, and the transaction that made its node. Another holder may have a node of that name later.
    slot: Option<(u32, i64)>,
    /// Whether a release was sent and got no answer.
    leaving: AtomicBool,
}

impl Session for HoldSession {
    fn group(&self) -> Option<u64> {
        Some(self.lease.id() as u64)
    }

    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        Some(self.lease.ended())
    }
}

impl Place {
    pub(crate) fn new(path: String, prefix: String, mode: NodeMode, acls: Acls<'static>) -> Self {
        Self { path, prefix, mode, acls, state: Arc::default() }
    }

    pub(crate) async fn next_access(&self) -> StateAccess {
        dlock_store::next_access(&self.state).await
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}
