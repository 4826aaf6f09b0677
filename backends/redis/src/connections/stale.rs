//! Stale connections: abandoned while requests may have been on their way. The server ends them, by `CLIENT KILL`,
//! before it gets any other request.
//!
//! The network repeats what was sent over a broken connection for minutes. A `SET` that arrives after its own undoing,
//! which went over another connection, leaves a lock that nobody holds for a whole ttl. `CLIENT KILL` makes the server
//! read no more from there. A client is named by its number and its address: a server that was restarted counts from
//! the beginning, and gives the same pair to nobody else.
//!
//! An account that may not run `CLIENT INFO` and `CLIENT KILL` does without. So do unix sockets, where no network is in
//! between, and clusters.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ::redis::{Cmd, Value};

use crate::scripts::call::words;

/// The most that are remembered. Beyond this the oldest are forgotten.
const MOST_CLIENTS: usize = 64;

/// The stale connections of one store.
#[derive(Debug, Default)]
pub(crate) struct StaleConnections {
    clients: Mutex<Vec<Client>>,
    /// Whether there is any stale connection. Without one, a request pays one load.
    any: AtomicBool,
}

/// The server's name for a connection, once it is known.
#[derive(Debug, Default)]
pub(crate) struct ClientName {
    client: OnceLock<Client>,
    /// Set when the connection is noted, so that it is ended once.
    is_left: AtomicBool,
}

/// Entries that are being ended. Those for which no answer has come go back.
pub(crate) struct Ending<'a> {
    pub(crate) stale: &'a StaleConnections,
    pub(crate) clients: Vec<Client>,
}

/// A connection, as the server names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    id: u64,
    address: SocketAddr,
}

impl StaleConnections {
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Notes a connection, before its users hear that it is dead.
    pub(crate) fn add(&self, named: &ClientName) {
        if let Some(client) = named.client.get()
            && !named.is_left.swap(true, Ordering::AcqRel)
        {
            self.put([client.clone()]);
        }
    }

    fn put(&self, more: impl IntoIterator<Item = Client>) {
        let mut clients = self.clients();
        clients.extend(more);
        let first = clients.len().saturating_sub(MOST_CLIENTS);
        clients.drain(..first);
        self.any.store(!clients.is_empty(), Ordering::Release);
    }

    /// Takes all out. Only one caller ends them: thousands wait when a server comes back, and each end is a look at all
    /// clients of the server.
    pub(crate) fn take(&self) -> Vec<Client> {
        let mut clients = self.clients();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *clients)
    }

    /// Another server has become the primary: what is on its way to the old one counts no more.
    pub(crate) fn forget(&self) {
        self.take();
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientName {
    /// Reads what `CLIENT INFO` says.
    pub(crate) fn name(&self, answer: &Value) {
        if let Some(client) = Client::read(answer) {
            // Already set if the server has answered before.
            let _ = self.client.set(client);
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.clients.is_empty() {
            self.stale.put(self.clients.drain(..));
        }
    }
}

impl Client {
    fn read(answer: &Value) -> Option<Self> {
        let text: String = ::redis::from_redis_value_ref(answer).ok()?;
        let field = |name| text.split_whitespace().find_map(|field| field.strip_prefix(name));
        Some(Self { id: field("id=")?.parse().ok()?, address: field("addr=")?.parse().ok()? })
    }

    pub(crate) fn kill(&self) -> Cmd {
        words(&["CLIENT", "KILL", "ID", &self.id.to_string(), "ADDR", &self.address.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_read_and_one_on_a_unix_socket_is_none() {
        let read = |text: &str| Client::read(&Value::BulkString(text.into()));
        let client = read("id=7 addr=[::1]:50312 laddr=[::1]:6379 fd=8 name= age=0\n").unwrap();
        assert_eq!(client, Client { id: 7, address: "[::1]:50312".parse().unwrap() });
        for none in ["", "id=7", "id=7 addr=/run/redis.sock:0 laddr=/run/redis.sock:0", "id=-1 addr=[::1]:50312"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn the_list_of_stale_connections_is_bounded_and_forgotten() {
        let stale = StaleConnections::default();
        stale.add(&ClientName::default());
        assert!(!stale.any());
        for id in 0..100 {
            let named = ClientName::default();
            named.name(&Value::BulkString(format!("id={id} addr=127.0.0.1:1").into()));
            stale.add(&named);
            stale.add(&named);
        }
        assert!(stale.any() && stale.clients().len() == MOST_CLIENTS && stale.clients()[0].id == 36);
        let ending = Ending { stale: &stale, clients: stale.take() };
        assert!(!stale.any());
        drop(ending);
        assert!(stale.any() && stale.clients().len() == MOST_CLIENTS);
        stale.forget();
        assert!(!stale.any());
    }
}
