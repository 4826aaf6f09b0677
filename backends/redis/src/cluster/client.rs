//! The one client of a cluster, which all runtimes share. It lives on dlock's own thread and is opened there, because a caller
//! may have less time than an opening takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redis::cluster_async::ClusterConnection;
use dlock_contract::engine::background;
use dlock_contract::{Error, ErrorKind, Result};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

/// The future that opens a client.
pub(crate) type Opening = BoxFuture<'static, Result<ClusterConnection>>;

/// The present client, if there is one.
#[derive(Default)]
pub(crate) struct SharedClient {
    present: Mutex<Option<Numbered>>,
    /// The number of the present client; 0 if there is none.
    number: AtomicU64,
    opened: AtomicU64,
    /// Held while a client is opened, so that only one is.
    opening: tokio::sync::Mutex<()>,
    closed: AtomicBool,
}

/// A client, with a number that no other client of this store has.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub(crate) client: ClusterConnection,
    pub(crate) number: u64,
}

impl SharedClient {
    /// The present client, or the one that `open` gives. Dropping the returned future does not end an opening.
    pub(crate) async fn get(self: &Arc<Self>, open: impl FnOnce() -> Result<Opening>) -> Result<Numbered> {
        let known = self.present().clone();
        match known {
            Some(known) => Ok(known),
            None => self.open(0, open).await,
        }
    }

    /// Opens a client to replace the client with this number. The old client serves until then. If another caller is
    /// opening one already, this returns at once.
    pub(crate) async fn replace(self: &Arc<Self>, number: u64, open: impl FnOnce() -> Result<Opening>) {
        if self.opening.try_lock().is_ok() {
            // If this fails, requests on the present client report what is wrong.
            let _ = self.open(number, open).await;
        }
    }

    async fn open(self: &Arc<Self>, replaced: u64, open: impl FnOnce() -> Result<Opening>) -> Result<Numbered> {
        let (sender, receiver) = oneshot::channel();
        let (shared, open) = (self.clone(), open()?);
        background()?.spawn(async move {
            let _turn = shared.opening.lock().await;
            // If the caller has left meanwhile, the next caller opens the client.
            if sender.is_closed() {
                return;
            }
            let known = shared.present().clone().filter(|known| known.number != replaced);
            let answer = match known {
                Some(known) => Ok(known),
                None => open.await.map(|client| shared.keep(client)),
            };
            // The caller may have gone.
            let _ = sender.send(answer);
        });
        receiver
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "dlock's own thread opened no connection")))
    }

    fn keep(&self, client: ClusterConnection) -> Numbered {
        let opened = Numbered { client, number: self.opened.fetch_add(1, Ordering::Relaxed) + 1 };
        self.put(Some(opened.clone()));
        opened
    }

    /// Ends the present client. A client that is being opened ends as soon as it is open.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.put(None);
    }

    fn put(&self, client: Option<Numbered>) {
        let mut present = self.present();
        let client = client.filter(|_| !self.closed.load(Ordering::Relaxed));
        self.number.store(client.as_ref().map_or(0, |client| client.number), Ordering::Release);
        let before = std::mem::replace(&mut *present, client);
        drop(present);
        // Outside of the lock: its own drop may do anything.
        drop(before);
    }

    /// Whether the present client has this number.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.number.load(Ordering::Acquire) == number
    }

    fn present(&self) -> MutexGuard<'_, Option<Numbered>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
