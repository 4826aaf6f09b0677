//! Order of requests: an abandon comes after its acquire over another runtime, and after stale connections are ended.

use std::sync::Arc;

use ::redis::Value;
use dlock_contract::{Origin, Result};
use futures::future::join;

use crate::connections::connection::Connection;
use crate::connections::pool::Connections;
use crate::connections::stale::{Client, Ending};
use crate::queue::limits::GRANT_LIMIT;

impl Connections {
    /// Ends what was left, so that a request that follows over this connection comes after all that was sent there.
    pub(crate) async fn kill_stale(&self, connection: &Arc<Connection>) {
        if !self.stale.any() {
            return;
        }
        let mut ending = Ending { stale: &self.stale, clients: self.stale.take() };
        if ending.clients.is_empty() {
            return;
        }
        let answers = self.pipeline(connection, ending.clients.iter().map(Client::kill)).await;
        // A server that is busy with a script refuses for a moment. Any other refusal is final.
        let later =
            |answer: &Value| matches!(answer, Value::ServerError(error) if matches!(error.code(), "BUSY" | "LOADING"));
        if answers.is_ok_and(|answers| !answers.iter().any(later)) {
            ending.clients.clear();
        }
    }
}

impl Connections {
    /// Sends a request over the connection of the runtime `origin`, if that is open: two have no order, and what is to be
    /// undone may be on its way still. The request may be sent twice.
    pub(crate) async fn after<T, F: Future<Output = Result<T>>>(
        self: &Arc<Self>,
        origin: Option<Origin>,
        request: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T> {
        if let Some(shared) = origin.and_then(|origin| self.of(origin)) {
            // The other runtime may be blocked, or end at this moment.
            let limit = self.clock.now().after(GRANT_LIMIT);
            // Both are handed over at once: the request has its place behind what it undoes, whether or not answers come.
            let both = join(self.kill_stale(&shared), request(shared.clone()));
            if let Some(((), Ok(answer))) = self.clock.timeout_at(limit, both).await {
                return Ok(answer);
            }
        }
        request(self.here().await?).await
    }
}
