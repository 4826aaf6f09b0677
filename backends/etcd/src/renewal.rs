//! Renews many holds: one keep-alive for each lease, and one read of their keys.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Hold, Result, Standing};
use etcd_client::{GetOptions, Txn, TxnOp};
use futures::future::{join, join_all};

use super::connection::{Connection, SILENT_AFTER};
use super::fault::Fault;
use super::lease::MAX_TXN_KEYS;
use super::place::Place;
use super::store::{Etcd, held};

/// The longest time that the engine waits for a renewal, for any ttl.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// One hold of a group: its index among all holds, its place, its create revision.
type GroupHold<'a> = (usize, &'a Place, i64);

impl Etcd {
    pub(super) async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return holds.iter().map(|_| Err(unknown(&error))).collect(),
        };
        let mut answers: Vec<_> = holds.iter().map(|_| None).collect();
        let mut groups: BTreeMap<i64, Vec<GroupHold<'_>>> = BTreeMap::new();
        for (index, hold) in holds.iter().enumerate() {
            match held(hold) {
                Ok((place, revision)) => groups.entry(place.lease.id).or_default().push((index, place, revision)),
                Err(error) => answers[index] = Some(Err(error)),
            }
        }
        let shortest = holds.iter().map(|hold| hold.claim.ttl).min().unwrap_or_default();
        let mut requests = pin!(join_all(groups.values().map(|group| self.renew_group(&connection, group))));
        // After this time, later requests go to another member. This request goes on, because the engine takes its answer
        // even after it has given the renewal up.
        let clock = &self.connections.clock;
        let patience = clock.now().after((shortest / 3).clamp(SILENT_AFTER, MAX_WAIT));
        let groups = match clock.timeout_at(patience, requests.as_mut()).await {
            Some(groups) => groups,
            None => {
                connection.discard();
                requests.await
            }
        };
        for group in groups {
            group.into_iter().for_each(|(index, answer)| answers[index] = Some(answer));
        }
        let missing = || Err(Error::new(ErrorKind::Internal, "a renewal has no answer"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    async fn renew_group(&self, connection: &Connection, group: &[GroupHold<'_>]) -> Vec<(usize, Result<Standing>)> {
        let Some((_, first, _)) = group.first() else { return Vec::new() };
        let lease = &first.lease;
        // A lease that is alive does not prove that the keys exist: an operator may have deleted one.
        let (kept, keys_exist) = join(self.leases.keep(connection, lease), keys_exist(connection, group)).await;
        let answer = |stands: Result<bool, Fault>| match (&kept, stands) {
            (Ok(false), _) | (_, Ok(false)) => Ok(Standing::Lost),
            (Ok(true), Ok(true)) => Ok(Standing::Renewed(lease.validity())),
            (Err(fault), _) => Err(fault.error()),
            (_, Err(fault)) => Err(fault.error()),
        };
        group.iter().zip(keys_exist).map(|((index, ..), stands)| (*index, answer(stands))).collect()
    }
}

/// Whether each key exists with the revision that was granted, by a linearizable read.
async fn keys_exist(connection: &Connection, group: &[GroupHold<'_>]) -> Vec<Result<bool, Fault>> {
    let requests = group.chunks(MAX_TXN_KEYS).map(async |batch| {
        let keys_only = || Some(GetOptions::new().with_keys_only());
        let gets: Vec<_> = batch.iter().map(|(_, place, _)| TxnOp::get(place.key.clone(), keys_only())).collect();
        let mut answers = match connection.txn(Txn::new().and_then(gets)).await {
            Ok(answers) => answers,
            Err(fault) => return batch.iter().map(|_| Err(fault.clone())).collect(),
        };
        let stands = |(_, place, revision): &GroupHold<'_>| {
            Ok(answers.first_key()?.is_some_and(|key| key.create_revision() == *revision && place.is_mine(&key)))
        };
        batch.iter().map(stands).collect::<Vec<_>>()
    });
    // All at once, so that this takes one round trip.
    join_all(requests).await.into_iter().flatten().collect()
}

/// The same error for each of many holds.
fn unknown(error: &Error) -> Error {
    Error::new(error.kind().clone(), "the renewal could not be sent to etcd")
        .with_retryable(error.is_retryable())
        .because(error.to_string())
}
