//! Renews many holds: one request for each session, which a majority must confirm.

use std::collections::BTreeMap;
use std::sync::Arc;

use dlock_contract::{Error, ErrorKind, Hold, Result, Standing, Validity};
use dlock_store::detached;
use futures::future::{join, join_all, try_join_all};
use zookeeper_client::Client;

use crate::place::HoldSession;
use crate::server::exists;
use crate::server::fault::fault;
use crate::session::Lease;

/// The answers are in the order of the holds.
pub(crate) async fn renew(holds: &[&Hold]) -> Vec<Result<Standing>> {
    let mut answers: Vec<Option<Result<Standing>>> = holds.iter().map(|_| None).collect();
    let mut groups: BTreeMap<i64, (Vec<usize>, Vec<Arc<HoldSession>>)> = BTreeMap::new();
    for (index, hold) in holds.iter().enumerate() {
        match hold.shared_session::<HoldSession>() {
            Some(held) => {
                let (indices, group) = groups.entry(held.lease.id()).or_default();
                indices.push(index);
                group.push(held);
            }
            None => answers[index] = Some(Err(foreign())),
        }
    }
    let requests = groups.into_values().map(async |(indices, group)| (indices, detached(renew_group(group)).await));
    for (indices, answered) in join_all(requests).await {
        match answered {
            Ok(standings) => {
                indices.iter().zip(standings).for_each(|(index, standing)| answers[*index] = Some(standing))
            }
            Err(error) => indices.iter().for_each(|index| answers[*index] = Some(Err(error.again()))),
        }
    }
    let missing = || Err(Error::new(ErrorKind::Internal, "a renewal has no answer"));
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// The error for a hold of another store.
pub(crate) fn foreign() -> Error {
    Error::new(ErrorKind::Internal, "a hold of another backend was given to ZooKeeper")
}

async fn renew_group(group: Vec<Arc<HoldSession>>) -> Result<Vec<Result<Standing>>> {
    let Some(lease) = group.first().map(|held| held.lease.clone()) else { return Ok(Vec::new()) };
    match check_group(&group, &lease).await {
        // The session has ended for certain, whatever the answer is.
        _ if !lease.lives() => Ok(group.iter().map(|_| Ok(Standing::Lost)).collect()),
        answer => answer,
    }
}

async fn check_group(group: &[Arc<HoldSession>], lease: &Lease) -> Result<Vec<Result<Standing>>> {
    let client = lease.client().await?;
    let from = lease.clock().now();
    let renewed = Standing::Renewed(Validity::new(from, lease.ttl()));
    // Each hold has two nodes at most.
    let requests = group.chunks(exists::MAX_NODES / 2).map(async |chunk| {
        let answer = lease.while_connected(nodes_exist(&client, chunk)).await;
        answer.unwrap_or_else(|error| chunk.iter().map(|_| Err(error.again())).collect())
    });
    let exist: Vec<_> = join_all(requests).await.into_iter().flatten().collect();
    // One answer is enough to know that the session lives.
    if exist.iter().any(Result::is_ok) {
        lease.confirm(from);
    }
    let mut standings = Vec::with_capacity(group.len());
    for (held, exists) in group.iter().zip(exist) {
        if matches!(exists, Ok(false)) && held.nodes.len() > 1 {
            // An operator may have deleted one of two nodes.
            let _ = held.clone().release(held.place.next_access().await).await;
        }
        standings.push(exists.map(|exists| if exists { renewed } else { Standing::Lost }));
    }
    Ok(standings)
}

/// For each hold, whether all its nodes exist. An inner error concerns that hold alone.
async fn nodes_exist(client: &Client, chunk: &[Arc<HoldSession>]) -> Result<Vec<Result<bool>>> {
    let nodes: Vec<_> = chunk.iter().flat_map(|held| held.nodes.iter().cloned()).collect();
    // These reads are sent after the request to the majority. So what this member knows about the slots is at least as new
    // as the majority's answer.
    let have_slots = join_all(chunk.iter().map(|held| held.has_slot(client)));
    let (checked, have_slots) = join(exists::check_all(client, &nodes), have_slots).await;
    if checked?.is_ok() {
        return Ok(have_slots);
    }
    // A majority has confirmed that one of the nodes does not exist, or may not be read. This member's data is at least as
    // new, and reading it needs no right to the nodes.
    let each = chunk.iter().zip(have_slots).map(async |(held, has_slot)| {
        let stats = held.nodes.iter().map(|node| client.check_stat(node));
        let stats = try_join_all(stats).await.map_err(|error| fault(&error))?;
        Ok(has_slot? && stats.iter().all(Option::is_some))
    });
    Ok(join_all(each).await)
}
