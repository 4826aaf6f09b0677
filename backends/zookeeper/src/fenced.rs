//! Writes in ZooKeeper that succeed only while the lock is held: the transaction that writes also checks the lock's node.
//!
//! ```no_run
//! # async fn write(fence: &dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_zookeeper::client::Client;
//! use dlock_zookeeper::fenced;
//!
//! // A client of your own, with the chroot of the store's URL as its root.
//! let client = Client::connect("zk1:2181,zk2:2181/app").await?;
//!
//! let lock = fenced::Guarded::by(&client, fence).await?; // refuses a token whose hold has ended
//! let mut writer = lock.writer(&client)?;
//! writer.add_set_data("/stock/42", b"17", None)?;
//! fenced::commit(fence, writer).await?; // all of it, or nothing if the lock was lost meanwhile
//! # Ok(()) }
//! ```

use dlock_contract::{Error, ErrorKind, Fence, Result};
use futures::future::join_all;
use zookeeper_client::{CheckWriteError, CheckWriter, Client, Error as ClientError, MultiWriteResult};

use crate::lock_nodes::{slots, wait_queue};
use crate::server::fault::fault;
use crate::server::paths::Paths;

/// The node of a hold, for writes that must depend on the hold.
#[derive(Clone, Debug)]
pub struct Guarded {
    node: String,
}

impl Guarded {
    /// The node of the hold that has this token. The client's root is the chroot of the store's URL.
    ///
    /// # Errors
    /// [`FenceStale`](dlock_contract::ErrorKind::FenceStale) if no hold of the lock has this token; the servers' errors.
    pub async fn by(client: &Client, fence: &Fence) -> Result<Self> {
        Self::at(client, &Paths::of_own_names().lock(fence.key())?, fence).await
    }

    /// For a lock at this path, such as one of a store with `keys=literal`.
    ///
    /// # Errors
    /// As [`by`](Self::by).
    pub async fn at(client: &Client, path: &str, fence: &Fence) -> Result<Self> {
        let queue = wait_queue(client, path).await?;
        let has = |number: i64| u64::try_from(number).is_ok_and(|number| number == fence.get());
        // Other holders make slot nodes of the same name later. So the check uses the node in the queue, not the slot's node.
        let slots = slots(client, path, &queue).await?;
        let of_permit = slots.iter().find(|(_, _, token)| has(*token)).and_then(|(_, owner, _)| {
            queue.contenders.iter().find(|contender| contender.name.as_bytes().starts_with(owner))
        });
        if let Some(contender) = of_permit {
            return Ok(Self { node: format!("{path}/{}", contender.name) });
        }
        let nodes = queue.holders().map(|contender| format!("{path}/{}", contender.name));
        let looked = nodes.map(async |node| (client.check_stat(&node).await, node));
        for (stat, node) in join_all(looked).await {
            let stat = stat.map_err(|error| fault(&error))?;
            if stat.is_some_and(|stat| has(stat.czxid) || has(stat.mzxid)) {
                return Ok(Self { node });
            }
        }
        Err(stale(fence))
    }

    /// Begins a transaction of this client that depends on the hold.
    ///
    /// # Errors
    /// If the client has another root than the one that found the node.
    pub fn writer<'a>(&self, client: &'a Client) -> Result<CheckWriter<'a>> {
        client.new_check_writer(&self.node, None).map_err(|error| fault(&error))
    }
}

/// Commits the writer's operations: all of them or none.
///
/// # Errors
/// [`FenceStale`](dlock_contract::ErrorKind::FenceStale) if the hold has ended; then nothing was written. The
/// servers' errors: after an [`Outage`](dlock_contract::ErrorKind::Outage) the operations may have been done.
pub async fn commit(fence: &Fence, writer: CheckWriter<'_>) -> Result<Vec<MultiWriteResult>> {
    writer.commit().await.map_err(|error| match error {
        CheckWriteError::CheckFailed { source: ClientError::NoNode | ClientError::BadVersion } => stale(fence),
        // A node of the user's own, and no container that the servers have swept.
        CheckWriteError::OperationFailed { source: ClientError::NoNode, .. } => {
            Error::new(ErrorKind::Protocol, "a node that the write names does not exist in ZooKeeper")
        }
        CheckWriteError::CheckFailed { source }
        | CheckWriteError::RequestFailed { source }
        | CheckWriteError::OperationFailed { source, .. } => fault(&source),
    })
}

/// The servers do not return the newest token, so the error names the lowest possible one.
fn stale(fence: &Fence) -> Error {
    fence.named(Error::fence_stale(fence, fence.get().saturating_add(1)))
}
