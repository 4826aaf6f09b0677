//! The place of one claim: what this process knows of its nodes, and the requests that make and delete them.

mod core;
mod enter;
mod find;
mod grant;
mod leave;
mod pass;
mod slot;
mod stand;

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use dlock_contract::{BootInstant, Session};
use futures::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard};
use zookeeper_client::Acls;

pub(crate) use self::core::Core;
use crate::line::Kind;
use crate::session::Lease;

/// The place of one claim. The requests of one place follow each other, also if their callers do not wait for them.
pub(crate) struct Place {
    /// The path of the lock.
    pub(crate) path: String,
    /// The name of the claim's node, without the server's digits.
    prefix: String,
    kind: Kind,
    acls: Acls<'static>,
    known: Arc<Mutex<Known>>,
}

/// What is known of the nodes of a place.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) lease: Option<Arc<Lease>>,
    pub(crate) node: Option<Node>,
    /// The permit's number, and the token of its node.
    slot: Option<(u32, i64)>,
    /// Whether a node may have been made of which nothing is known.
    unsure: bool,
    /// Whether it stood behind others. Then the number of its node is older than its grant.
    waited: bool,
    /// Whether a release was sent that had no answer.
    leaving: bool,
}

/// A node of ours, which the store has confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The transaction that granted, or that made the node as long as nothing is granted.
    token: i64,
    /// When the request left by which a majority has confirmed it, for the attempt of now.
    since: Option<BootInstant>,
}

/// A turn that has come, or will come in the order of the calls.
pub(crate) type Turn = Pin<Box<dyn Future<Output = OwnedMutexGuard<Known>> + Send>>;

/// The session of a hold, and its node there.
pub(crate) struct Held {
    pub(crate) place: Arc<Place>,
    pub(crate) lease: Arc<Lease>,
    /// The node in the line, and the node of the permit's number.
    pub(crate) nodes: Vec<String>,
    /// The transaction that made the node of the permit's number: others may have one of that name later.
    slot: Option<(u32, i64)>,
}

impl Session for Held {
    fn group(&self) -> Option<u64> {
        Some(self.lease.id() as u64)
    }

    fn ended(&self) -> Option<BoxFuture<'static, ()>> {
        Some(self.lease.ended())
    }
}

impl Place {
    pub(crate) fn new(path: String, prefix: String, kind: Kind, acls: Acls<'static>) -> Self {
        Self { path, prefix, kind, acls, known: Arc::default() }
    }

    /// The next turn among the requests of this place. It is taken by the call, and not by the task that does the request:
    /// an abandon is called on our thread, and its task may run before one that another thread has spawned.
    pub(crate) async fn turn(&self) -> Turn {
        let mut waiting = Box::pin(self.known.clone().lock_owned());
        match futures::poll!(waiting.as_mut()) {
            Poll::Ready(known) => Box::pin(ready(known)),
            Poll::Pending => waiting,
        }
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}
