//! Renews many holds: one keep-alive for each lease, and one read of their keys.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use dlock_contract::{Error, ErrorKind, Hold, Result, Standing};
use etcd_client::{GetOptions, Txn, TxnOp};
use futures::future::{join, join_all};

use super::connection::{Connection, SILENCE};
use super::fault::Fault;
use super::lease::BATCH;
use super::place::{Parts, Place};
use super::store::{Etcd, held};

/// The longest time that the engine waits for a renewal, for any ttl.
const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// One hold of a group: its index among all, its place, its create revision.
type Member<'a> = (usize, &'a Place, i64);

impl Etcd {
    pub(super) async fn renew_all(&self, holds: &[&Hold]) -> Vec<Result<Standing>> {
        let connection = match self.connections.get().await {
            Ok(connection) => connection,
            Err(error) => return holds.iter().map(|_| Err(unknown(&error))).collect(),
        };
        let mut answers: Vec<_> = holds.iter().map(|_| None).collect();
        let mut groups: BTreeMap<i64, Vec<Member<'_>>> = BTreeMap::new();
        for (index, hold) in holds.iter().enumerate() {
            match held(hold) {
                Ok((place, revision)) => groups.entry(place.lease.id).or_default().push((index, place, revision)),
                Err(error) => answers[index] = Some(Err(error)),
            }
        }
        let shortest = holds.iter().map(|hold| hold.claim.ttl).min().unwrap_or_default();
        let mut asked = pin!(join_all(groups.values().map(|group| self.renew_group(&connection, group))));
        // The engine still takes the answer after it has given a renewal up. By then the next renewal goes to another
        // member.
        let clock = &self.connections.clock;
        let patience = clock.now().after((shortest / 3).clamp(SILENCE, MOST_PATIENCE));
        let groups = match clock.timeout_at(patience, asked.as_mut()).await {
            Some(groups) => groups,
            None => {
                connection.discard();
                asked.await
            }
        };
        for group in groups {
            group.into_iter().for_each(|(index, answer)| answers[index] = Some(answer));
        }
        let missing = || Err(Error::new(ErrorKind::Internal, "a renewal has no answer"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    async fn renew_group(&self, connection: &Connection, group: &[Member<'_>]) -> Vec<(usize, Result<Standing>)> {
        let Some((_, first, _)) = group.first() else { return Vec::new() };
        let lease = &first.lease;
        // A living lease does not prove that the keys exist: an operator may have deleted one.
        let (kept, stand) = join(self.leases.keep(connection, lease), stand(connection, group)).await;
        let answer = |stands: Result<bool, Fault>| match (&kept, stands) {
            (Ok(false), _) | (_, Ok(false)) => Ok(Standing::Lost),
            (Ok(true), Ok(true)) => Ok(Standing::Renewed(lease.validity())),
            (Err(fault), _) => Err(fault.error()),
            (_, Err(fault)) => Err(fault.error()),
        };
        group.iter().zip(stand).map(|((index, ..), stands)| (*index, answer(stands))).collect()
    }
}

/// Whether each key exists with the revision that was granted, by a linearizable read.
async fn stand(connection: &Connection, group: &[Member<'_>]) -> Vec<Result<bool, Fault>> {
    let asked = group.chunks(BATCH).map(async |batch| {
        let keys_only = || Some(GetOptions::new().with_keys_only());
        let gets: Vec<_> = batch.iter().map(|(_, place, _)| TxnOp::get(place.key.clone(), keys_only())).collect();
        let answer = match connection.txn(Txn::new().and_then(gets)).await {
            Ok(answer) => answer,
            Err(fault) => return batch.iter().map(|_| Err(fault.clone())).collect(),
        };
        let mut parts = Parts::of(&answer);
        let stands = |(_, place, revision): &Member<'_>| {
            Ok(parts.first()?.is_some_and(|key| key.create_revision() == *revision && place.is_mine(&key)))
        };
        batch.iter().map(stands).collect::<Vec<_>>()
    });
    // All at once, so that the way to the server costs its time only once.
    join_all(asked).await.into_iter().flatten().collect()
}

/// The same failure for each of many holds.
fn unknown(error: &Error) -> Error {
    Error::new(error.kind().clone(), "the renewal could not be sent to etcd")
        .with_retryable(error.is_retryable())
        .because(error.to_string())
}
