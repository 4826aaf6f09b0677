//! Writes in ZooKeeper that are done only while the lock is held: the servers look at the lock's node in the step that
//! writes.
//!
//! ```no_run
//! # async fn write(fence: &dlock_contract::Fence) -> Result<(), Box<dyn std::error::Error>> {
//! use dlock_zookeeper::client::Client;
//! use dlock_zookeeper::fenced as fenced;
//!
//! // A client of your own, with the chroot of the store's URL as its root.
//! let client = Client::connect("zk1:2181,zk2:2181/app").await?;
//!
//! let lock = fenced::Guarded::by(&client, fence).await?; // refuses a token whose lock is not held any more
//! let mut writer = lock.writer(&client)?;
//! writer.add_set_data("/stock/42", b"17", None)?;
//! fenced::commit(fence, writer).await?; // all of it, or nothing if the lock was lost meanwhile
//! # Ok(()) }
//! ```

use dlock_contract::{Error, Fence, Result};
use futures::future::join_all;
use zookeeper_client::{CheckWriteError, CheckWriter, Client, Error as ClientError, MultiWriteResult};

use crate::inspect::{line, slots};
use crate::wire::fault::fault;
use crate::wire::paths::Paths;

/// The node of a hold, for writes that depend on it.
#[derive(Clone, Debug)]
pub struct Guarded {
    node: String,
}

impl Guarded {
    /// The node of the hold that has this token. The client's root is the chroot of the store's URL.
    ///
    /// # Errors
    /// [`FenceStale`](dlock_contract::ErrorKind::FenceStale) if no hold of the lock has this token, and what the servers
    /// fail with.
    pub async fn by(client: &Client, fence: &Fence) -> Result<Self> {
        Self::at(client, &Paths::of_own_names().lock(fence.key())?, fence).await
    }

    /// The same for a lock at this path, such as one of a store with `keys=literal`.
    ///
    /// # Errors
    /// As [`by`](Self::by).
    pub async fn at(client: &Client, path: &str, fence: &Fence) -> Result<Self> {
        let line = line(client, path).await?;
        let has = |number: i64| u64::try_from(number).is_ok_and(|number| number == fence.get());
        // A permit's number is taken again by others under the same name, so the place that took it stands for the hold.
        let slots = slots(client, path, &line).await?;
        let of_permit = slots.iter().find(|(_, _, token)| has(*token)).and_then(|(_, owner, _)| {
            line.contenders.iter().find(|contender| contender.name.as_bytes().starts_with(owner))
        });
        if let Some(contender) = of_permit {
            return Ok(Self { node: format!("{path}/{}", contender.name) });
        }
        let nodes = line.holders().map(|contender| format!("{path}/{}", contender.name));
        let looked = nodes.map(async |node| (client.check_stat(&node).await, node));
        for (stat, node) in join_all(looked).await {
            let stat = stat.map_err(|error| fault(&error))?;
            if stat.is_some_and(|stat| has(stat.czxid) || has(stat.mzxid)) {
                return Ok(Self { node });
            }
        }
        Err(stale(fence))
    }

    /// Begins a transaction of the client's that depends on the hold.
    ///
    /// # Errors
    /// If the client has another root than the one that found the node.
    pub fn writer<'a>(&self, client: &'a Client) -> Result<CheckWriter<'a>> {
        client.new_check_writer(&self.node, None).map_err(|error| fault(&error))
    }
}

/// Does what was added to the writer, all or nothing.
///
/// # Errors
/// [`FenceStale`](dlock_contract::ErrorKind::FenceStale) if the hold has ended; nothing was written then. What the servers
/// fail with: after an [`Outage`](dlock_contract::ErrorKind::Outage) it may have been written.
pub async fn commit(fence: &Fence, writer: CheckWriter<'_>) -> Result<Vec<MultiWriteResult>> {
    writer.commit().await.map_err(|error| match error {
        CheckWriteError::CheckFailed { source: ClientError::NoNode | ClientError::BadVersion } => stale(fence),
        CheckWriteError::CheckFailed { source }
        | CheckWriteError::RequestFailed { source }
        | CheckWriteError::OperationFailed { source, .. } => fault(&source),
    })
}

/// The servers do not tell which token is the newest.
fn stale(fence: &Fence) -> Error {
    Error::fence_stale(fence, fence.get().saturating_add(1)).with_key(fence.key().as_str())
}
