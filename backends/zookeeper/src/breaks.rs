//! Breaking a hold: its node is deleted and a record is left, in one step that compares the node's version.

use std::time::Duration;

use dlock_contract::{BreakRecord, HoldId, Result};
use futures::future::join_all;
use zookeeper_client::{Client, CreateMode, Error as ClientError, MultiWriteError};

use crate::core::Core;
use crate::data;
use crate::fault::fault;
use crate::inspect::{line, slots};
use crate::line::slot_name;
use crate::paths::Paths;

/// The shortest time for which a record is kept.
const KEPT: Duration = Duration::from_secs(60);
/// How many records one break looks through for old ones.
const SWEPT: usize = 100;

/// Ends the hold of this id. False: no hold of this id holds the lock.
pub(crate) async fn break_hold(
    client: &Client,
    core: &Core,
    path: &str,
    id: HoldId,
    record: &BreakRecord,
) -> Result<bool> {
    let line = line(client, path).await?;
    let broken = line.holders().find(|contender| contender.owner.is_some_and(|owner| HoldId::of(&owner) == id));
    let Some(contender) = broken else { return Ok(false) };
    let node = format!("{path}/{}", contender.name);
    let stat = match client.get_data(&node).await {
        Ok((data, stat)) if data::note(&data).is_some() => stat,
        Ok(_) | Err(ClientError::NoNode) => return Ok(false),
        Err(error) => return Err(fault(&error)),
    };
    let slots = slots(client, path, &line).await?;
    let slot = slots.iter().find(|(_, owner, _)| contender.name.as_bytes().starts_with(owner));
    let slot = slot.map(|(slot, ..)| format!("{path}/{}", slot_name(*slot)));
    client
        .mkdir(&core.paths.broken(), &CreateMode::Container.with_acls(core.acls))
        .await
        .map_err(|error| fault(&error))?;
    let (text, left) = (record.as_str().as_bytes(), core.paths.record(id));
    let mut writer = client.new_multi_writer();
    let mut add = || {
        writer.add_create(&left, text, &CreateMode::Persistent.with_acls(core.acls))?;
        writer.add_delete(&node, Some(stat.version))?;
        slot.iter().try_for_each(|slot| writer.add_delete(slot, None))
    };
    add().map_err(|error| fault(&error))?;
    match writer.commit().await {
        Ok(_) => {
            let kept = KEPT.max(core.leases.range().max);
            sweep(client, &core.paths, &left, kept).await;
            Ok(true)
        }
        // It was freed meanwhile, or another operator was quicker.
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

/// Deletes records that are older than the newest by more than this, by the server's clock. What fails is left for the
/// next break.
async fn sweep(client: &Client, paths: &Paths, newest: &str, kept: Duration) {
    let folder = paths.broken();
    let (Ok(Some(newest)), Ok(names)) = (client.check_stat(newest).await, client.list_children(&folder).await) else {
        return;
    };
    let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let swept = names.iter().take(SWEPT).map(async |name| {
        let record = format!("{folder}/{name}");
        if let Ok(Some(stat)) = client.check_stat(&record).await
            && newest.ctime.saturating_sub(stat.ctime) > kept
        {
            let _ = client.delete(&record, None).await;
        }
    });
    join_all(swept).await;
}
