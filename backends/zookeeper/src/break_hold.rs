//! Breaking a hold: one transaction compares the node's version, deletes the node and leaves a record.

use std::time::Duration;

use dlock_contract::{BreakRecord, HoldId, Result};
use futures::future::join_all;
use zookeeper_client::{Client, CreateMode, Error as ClientError, MultiWriteError};

use crate::lock_nodes::{slots, wait_queue};
use crate::place::Shared;
use crate::queue::slot_name;
use crate::server::fault::fault;
use crate::server::node_data;
use crate::server::paths::Paths;

/// A record is kept for at least this time.
const MIN_RECORD_TIME: Duration = Duration::from_secs(60);
/// The most records that one break checks for old ones.
const MAX_RECORDS_CHECKED: usize = 100;

/// Ends the hold with this id. False: no hold with this id holds the lock.
pub(crate) async fn break_hold(
    client: &Client,
    shared: &Shared,
    path: &str,
    id: HoldId,
    record: &BreakRecord,
) -> Result<bool> {
    let queue = wait_queue(client, path).await?;
    let broken = queue.holders().find(|contender| contender.owner.is_some_and(|owner| HoldId::of(&owner) == id));
    let Some(contender) = broken else { return Ok(false) };
    let node = format!("{path}/{}", contender.name);
    let stat = match client.get_data(&node).await {
        Ok((data, stat)) if node_data::note(&data).is_some() => stat,
        Ok(_) | Err(ClientError::NoNode) => return Ok(false),
        Err(error) => return Err(fault(&error)),
    };
    let slots = slots(client, path, &queue).await?;
    let slot = slots.iter().find(|(_, owner, _)| contender.name.as_bytes().starts_with(owner));
    let slot = slot.map(|(slot, ..)| format!("{path}/{}", slot_name(*slot)));
    client
        .mkdir(&shared.paths.broken(), &CreateMode::Container.with_acls(shared.acls))
        .await
        .map_err(|error| fault(&error))?;
    let (text, left) = (record.as_str().as_bytes(), shared.paths.record(id));
    let mut writer = client.new_multi_writer();
    let mut add = || {
        writer.add_create(&left, text, &CreateMode::Persistent.with_acls(shared.acls))?;
        writer.add_delete(&node, Some(stat.version))?;
        slot.iter().try_for_each(|slot| writer.add_delete(slot, None))
    };
    add().map_err(|error| fault(&error))?;
    match writer.commit().await {
        Ok(_) => {
            let kept = MIN_RECORD_TIME.max(shared.leases.range().max);
            delete_old_records(client, &shared.paths, &left, kept).await;
            Ok(true)
        }
        // The lock was freed in between, or another operator was quicker.
        Err(MultiWriteError::OperationFailed {
            source: ClientError::NoNode | ClientError::BadVersion | ClientError::NodeExists,
            ..
        }) => Ok(false),
        Err(error) => Err(fault(&error.into())),
    }
}

/// The record of a hold that was broken.
pub(crate) async fn record(client: &Client, paths: &Paths, id: HoldId) -> Result<Option<BreakRecord>> {
    match client.get_data(&paths.record(id)).await {
        Ok((data, _)) => Ok(Some(BreakRecord::from_stored(&String::from_utf8_lossy(&data)))),
        Err(ClientError::NoNode) => Ok(None),
        Err(error) => Err(fault(&error)),
    }
}

/// Deletes records that are older than the newest one by more than `kept`, by the server's clock. If a deletion fails, the
/// next break tries again.
async fn delete_old_records(client: &Client, paths: &Paths, newest: &str, kept: Duration) {
    let folder = paths.broken();
    let (Ok(Some(newest)), Ok(names)) = (client.check_stat(newest).await, client.list_children(&folder).await) else {
        return;
    };
    let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let deletions = names.iter().take(MAX_RECORDS_CHECKED).map(async |name| {
        let record = format!("{folder}/{name}");
        if let Ok(Some(stat)) = client.check_stat(&record).await
            && newest.ctime.saturating_sub(stat.ctime) > kept
        {
            let _ = client.delete(&record, None).await;
        }
    });
    join_all(deletions).await;
}
