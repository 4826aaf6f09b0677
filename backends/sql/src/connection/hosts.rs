//! The servers of a store: one of them is connected to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Result};
use dlock_store::{Clock, Names};
use futures::future::BoxFuture;

use crate::connection::misread::unless_misread;

/// The servers of a store, each with what its client needs.
#[derive(Clone)]
pub struct Hosts<O> {
    all: Vec<O>,
    /// Which of them was used last. It is tried first.
    used: Arc<AtomicUsize>,
    /// How long each of them may take.
    patience: Duration,
    names: Arc<Names>,
}

impl<O: Sync> Hosts<O> {
    /// All of them have this time for one connect, so one that is silent must not use it up.
    #[must_use]
    pub fn new(all: Vec<O>, time: Duration) -> Self {
        let patience = time / u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        let (used, names) = Default::default();
        Self { all, used, patience, names }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &O> {
        self.all.iter()
    }

    /// Connects to the first one that takes the connection.
    ///
    /// # Errors
    /// The error of the last one; at once, if one refuses the account.
    pub async fn connect<'a, T>(
        &'a self,
        clock: &Clock,
        connect: impl Fn(&'a O) -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let (first, patience) = (self.used.load(Ordering::Relaxed), self.patience);
        let mut failed = Error::outage("there is no host to connect to");
        for index in 0..self.all.len() {
            let index = (first + index) % self.all.len();
            let late = || Err(Error::outage(not_ready(patience)));
            let connecting = unless_misread(connect(&self.all[index]));
            let connected = clock.timeout_at(clock.now().after(patience), connecting).await;
            match connected.unwrap_or_else(late) {
                Ok(connected) => {
                    self.used.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                // The other hosts would refuse it too.
                Err(error) if *error.kind() == ErrorKind::PermissionDenied => return Err(error),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Waits until a host's name is known. The client looks it up once more, which is quick then: it checks the server's
    /// certificate by the name, so an address would not do. So a look-up that hangs costs one thread, however many
    /// callers connect.
    ///
    /// # Errors
    /// If the name cannot be looked up.
    pub async fn is_known(&self, host: &str, port: u16) -> Result<()> {
        match self.names.addresses(host, port).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::outage(format!(
                "the name {host} of the server cannot be looked up; check the host in the URL"
            ))),
        }
    }
}

/// The text for a server to which no connection was ready in this time.
pub(crate) fn not_ready(time: Duration) -> String {
    format!(
        "no connection to the server was ready within {time:?}; check the host and the firewall, that the port is one of this kind of \
         server, and what makes the server slow"
    )
}
