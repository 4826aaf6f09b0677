//! Renews many holds: one request for each session, which a majority answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use dlock_contract::{Error, ErrorKind, Hold, Result, Standing, Validity};
use futures::future::{join, join_all, try_join_all};
use zookeeper_client::Client;

use crate::place::Held;
use crate::session::Lease;
use crate::task::to_its_end;
use crate::wire::fault::fault;
use crate::wire::standing;

/// Asks for all holds, each of which gets its answer, in their order.
pub(crate) async fn renew(holds: &[&Hold]) -> Vec<Result<Standing>> {
    let mut answers: Vec<Option<Result<Standing>>> = holds.iter().map(|_| None).collect();
    let mut groups: BTreeMap<i64, (Vec<usize>, Vec<Arc<Held>>)> = BTreeMap::new();
    for (index, hold) in holds.iter().enumerate() {
        match hold.shared_session::<Held>() {
            Some(held) => {
                let (indices, group) = groups.entry(held.lease.id()).or_default();
                indices.push(index);
                group.push(held);
            }
            None => answers[index] = Some(Err(foreign())),
        }
    }
    let asked = groups.into_values().map(async |(indices, group)| (indices, to_its_end(renew_group(group)).await));
    for (indices, answered) in join_all(asked).await {
        match answered {
            Ok(standings) => indices.iter().zip(standings).for_each(|(index, is)| answers[*index] = Some(Ok(is))),
            Err(error) => indices.iter().for_each(|index| answers[*index] = Some(Err(error.again()))),
        }
    }
    let missing = || Err(Error::new(ErrorKind::Internal, "a renewal has no answer"));
    answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
}

/// The error of a hold that is no hold of this store.
pub(crate) fn foreign() -> Error {
    Error::new(ErrorKind::Internal, "a hold of another backend was given to ZooKeeper")
}

async fn renew_group(group: Vec<Arc<Held>>) -> Result<Vec<Standing>> {
    let Some(lease) = group.first().map(|held| held.lease.clone()) else { return Ok(Vec::new()) };
    match lease.while_connected(ask(&group, &lease)).await {
        // The end of the session is certain, whatever the request said.
        _ if !lease.lives() => Ok(group.iter().map(|_| Standing::Lost).collect()),
        answer => answer,
    }
}

async fn ask(group: &[Arc<Held>], lease: &Lease) -> Result<Vec<Standing>> {
    let client = lease.client().await?;
    let from = lease.clock().now();
    let renewed = Standing::Renewed(Validity::new(from, lease.ttl()));
    // Each hold has two nodes at most.
    let asked = group.chunks(standing::BATCH / 2).map(|chunk| stand(&client, chunk));
    let stands = try_join_all(asked).await?;
    lease.confirm(from);
    let mut standings = Vec::with_capacity(group.len());
    for (held, stands) in group.iter().zip(stands.into_iter().flatten()) {
        standings.push(if stands { renewed } else { Standing::Lost });
        if !stands && held.nodes.len() > 1 {
            // An operator may have deleted one of two nodes.
            let _ = held.clone().release(held.place.turn().await).await;
        }
    }
    Ok(standings)
}

/// Which of these holds have all their nodes.
async fn stand(client: &Client, chunk: &[Arc<Held>]) -> Result<Vec<bool>> {
    let nodes: Vec<_> = chunk.iter().flat_map(|held| held.nodes.iter().cloned()).collect();
    // Behind the question to the majority. So what this member knows of the numbers is at least as new as that answer.
    let numbers = try_join_all(chunk.iter().map(|held| held.has_slot(client)));
    let (all, numbers) = join(standing::check(client, &nodes), numbers).await;
    let (all, numbers) = (all?, numbers?);
    if all {
        return Ok(numbers);
    }
    // A majority has answered that one of them has gone. What this member knows is at least as new as that answer.
    let each = chunk.iter().zip(numbers).map(async |(held, has_slot)| {
        let stats = held.nodes.iter().map(|node| client.check_stat(node));
        let stats = try_join_all(stats).await.map_err(|error| fault(&error))?;
        Ok::<_, Error>(has_slot && stats.iter().all(Option::is_some))
    });
    try_join_all(each).await
}
