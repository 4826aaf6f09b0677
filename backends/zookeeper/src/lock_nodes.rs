//! Reads the nodes of a lock: its wait queue and its taken slots.

use dlock_contract::Result;
use futures::future::{join, join_all};
use zookeeper_client::{Client, Error as ClientError};

use crate::queue::{WaitQueue, slot_name};
use crate::server::fault::fault;

/// The queue, as the leader knows it now.
pub(crate) async fn wait_queue(client: &Client, path: &str) -> Result<WaitQueue> {
    let (synced, listed) = join(client.sync(path), client.list_children(path)).await;
    synced.map_err(|error| fault(&error))?;
    match listed {
        Ok(children) => Ok(WaitQueue::of(&children)),
        Err(ClientError::NoNode) => Ok(WaitQueue::default()),
        Err(error) => Err(fault(&error)),
    }
}

/// A taken slot: its number, the beginning of its holder's name, and its token.
pub(crate) type TakenSlot = (u32, Vec<u8>, i64);

pub(crate) async fn slots(client: &Client, path: &str, queue: &WaitQueue) -> Result<Vec<TakenSlot>> {
    let read =
        queue.slots().iter().map(async |slot| (slot, client.get_data(&format!("{path}/{}", slot_name(*slot))).await));
    let mut slots = Vec::new();
    for (slot, found) in join_all(read).await {
        match found {
            Ok((data, stat)) => slots.push((*slot, data, stat.czxid)),
            Err(ClientError::NoNode) => {}
            Err(error) => return Err(fault(&error)),
        }
    }
    Ok(slots)
}
