//! One request after another, over two runtimes.

use std::sync::Arc;

use dlock_contract::Result;
use futures::future::join;
use tokio::runtime::Id;

use super::super::line::GRANT_LIMIT;
use super::{Connection, Connections};

impl Connections {
    /// Sends a request over the connection of the runtime `origin`, if that is open: two have no order, and what is to be
    /// undone may be on its way still. The request may be sent twice.
    pub(in super::super) async fn after<T, F: Future<Output = Result<T>>>(
        self: &Arc<Self>,
        origin: Option<Id>,
        request: impl Fn(Arc<Connection>) -> F,
    ) -> Result<T> {
        if let Some(shared) = origin.and_then(|origin| self.of(origin)) {
            // That runtime may be blocked, or end at this moment.
            let limit = self.clock.now().after(GRANT_LIMIT);
            // Both are handed over at once: the request has its place behind what it undoes, whether or not answers come.
            let both = join(self.end_left(&shared), request(shared.clone()));
            if let Some(((), Ok(answer))) = self.clock.timeout_at(limit, both).await {
                return Ok(answer);
            }
        }
        request(self.here().await?).await
    }
}
