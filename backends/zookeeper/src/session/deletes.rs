//! Deletes of one session that leave together: a transaction of many deletes costs the servers little more than one delete.

use std::sync::Arc;

use dlock_contract::Result;
use dlock_store::background;
use futures::future::join_all;
use tokio::sync::{Semaphore, mpsc, oneshot};
use zookeeper_client::{Client, Error as ClientError, MultiWriteError};

/// The most transactions at a time. A delete that finds fewer under way leaves at once.
const AT_ONCE: usize = 4;

/// The most holds of one transaction. With the longest keys it is shorter than the longest request that servers accept
/// (`jute.maxbuffer`, 1 MiB).
const MAX_HOLDS: usize = 32;

/// The result of deleting the nodes of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    All,
    /// One of them did not exist, so nothing was deleted.
    Missing,
}

/// The deletes of one session.
#[derive(Debug)]
pub(crate) struct Deletes {
    waiting: mpsc::UnboundedSender<Delete>,
    /// One for each transaction that may be under way.
    free_transactions: Arc<Semaphore>,
}

/// The nodes of one hold, which are deleted in one step.
#[derive(Debug)]
struct Delete {
    client: Client,
    nodes: Vec<String>,
    answer: oneshot::Sender<Result<Deleted, ClientError>>,
}

impl Deletes {
    /// The task that sends the deletes that wait ends when this is dropped.
    pub(crate) fn begin() -> Result<Self> {
        let (sender, waiting) = mpsc::unbounded_channel();
        let free_transactions = Arc::new(Semaphore::new(AT_ONCE));
        background()?.spawn(send_waiting(waiting, free_transactions.clone()));
        Ok(Self { waiting: sender, free_transactions })
    }

    /// Deletes the nodes of one hold in one step, perhaps in a transaction with those of other holds.
    pub(crate) async fn delete(&self, client: &Client, nodes: &[String]) -> Result<Deleted, ClientError> {
        // The caller sends it by itself if it can: a task would have to wake up first, and then wake the caller.
        if let Ok(_permit) = self.free_transactions.try_acquire() {
            return result(delete_all(client, &nodes.iter().collect::<Vec<_>>()).await);
        }
        let (answer, answered) = oneshot::channel();
        let _ = self.waiting.send(Delete { client: client.clone(), nodes: nodes.to_vec(), answer });
        answered.await.unwrap_or(Err(ClientError::ClientClosed))
    }
}

/// Sends deletes that wait, as many together as have come by then.
async fn send_waiting(mut waiting: mpsc::UnboundedReceiver<Delete>, free_transactions: Arc<Semaphore>) {
    while let Some(first) = waiting.recv().await {
        let Ok(permit) = free_transactions.clone().acquire_owned().await else { return };
        let mut batch = vec![first];
        while batch.len() < MAX_HOLDS
            && let Ok(next) = waiting.try_recv()
        {
            batch.push(next);
        }
        let Ok(background) = background() else { return };
        background.spawn(async move {
            delete_together(batch).await;
            drop(permit);
        });
    }
}

async fn delete_together(batch: Vec<Delete>) {
    let Some(client) = batch.first().map(|delete| delete.client.clone()) else { return };
    let nodes: Vec<_> = batch.iter().flat_map(|delete| &delete.nodes).collect();
    let done = delete_all(&client, &nodes).await;
    if batch.len() > 1 && matches!(done, Err(MultiWriteError::OperationFailed { .. })) {
        // One hold was lost. Nothing was deleted, and the others must still be.
        let alone = batch.into_iter().map(async |delete| {
            let nodes: Vec<_> = delete.nodes.iter().collect();
            let done = delete_all(&delete.client, &nodes).await;
            let _ = delete.answer.send(result(done));
        });
        join_all(alone).await;
        return;
    }
    for delete in batch {
        // The caller may have given up.
        let _ = delete.answer.send(result(done.clone()));
    }
}

async fn delete_all(client: &Client, nodes: &[&String]) -> Result<(), MultiWriteError> {
    if let [node] = nodes {
        let failed = |source| MultiWriteError::OperationFailed { index: 0, source };
        return client.delete(node, None).await.map_err(failed);
    }
    let mut writer = client.new_multi_writer();
    nodes.iter().try_for_each(|node| writer.add_delete(node, None))?;
    writer.commit().await.map(drop)
}

fn result(done: Result<(), MultiWriteError>) -> Result<Deleted, ClientError> {
    match done {
        Ok(()) => Ok(Deleted::All),
        Err(MultiWriteError::OperationFailed { source: ClientError::NoNode, .. }) => Ok(Deleted::Missing),
        Err(error) => Err(error.into()),
    }
}
