//! Several locks in one transaction: all or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use dlock_contract::{Claim, Error, ErrorKind, Result, Together};
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::connection::Connection;
use super::enter::{EPOCH_READS, mode_conflict, oldest};
use super::fault::Fault;
use super::names::KeyKind;
use super::place::Place;
use super::position::check_has_lease;
use super::store::{Etcd, can_be_batched};

/// The most locks of one request. If it is refused, each lock needs three reads, and the server's bound is 128.
const MAX_LOCKS: usize = 42;

/// The result of one transaction.
enum BatchResult {
    /// The claims hold all locks.
    AllHeld,
    /// Another owner holds one of the locks.
    Taken,
    /// The store's state differed from what this process knew. Now it is known.
    Retry,
}

impl Etcd {
    pub(super) async fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        if !(2..=MAX_LOCKS).contains(&claims.len()) || !claims.iter().all(|claim| can_be_batched(claim)) {
            return Ok(Together::OneByOne);
        }
        let connection = self.connections.get().await.map_err(Error::never_sent)?;
        for _ in 0..EPOCH_READS {
            let mut places = Vec::with_capacity(claims.len());
            for claim in claims {
                places.push(self.place(&connection, claim).await?);
            }
            match enter_all(&connection, &places).await {
                Ok(BatchResult::AllHeld) => {
                    let holds = claims.iter().zip(&places).map(|(claim, place)| place.granted(claim));
                    return holds.collect::<Result<_>>().map(Together::Acquired);
                }
                Ok(BatchResult::Taken) => {
                    self.forget_all_refused(claims, &places).await?;
                    return Ok(Together::Contended);
                }
                Ok(BatchResult::Retry) => {}
                Err(Fault::LeaseGone) => {
                    for (claim, place) in claims.iter().zip(&places) {
                        self.leases.mark_ended(&place.lease);
                        self.forget(place, claim.owner);
                    }
                }
                Err(fault) => {
                    let error = Error::from(fault);
                    if error.kind() == &ErrorKind::KeyConflict {
                        self.forget_all_refused(claims, &places).await?;
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::new(
            ErrorKind::Outage,
            "other requests changed the state in etcd too often while several locks were requested together",
        ))
    }

    async fn forget_all_refused(&self, claims: &[Arc<Claim>], places: &[Arc<Place>]) -> Result<()> {
        for (claim, place) in claims.iter().zip(places) {
            // A place with a revision has its key, so its lock is held.
            if place.state().revision.is_none() {
                self.forget_refused(claim, place).await?;
            }
        }
        Ok(())
    }
}

async fn enter_all(connection: &Connection, places: &[Arc<Place>]) -> Result<BatchResult, Fault> {
    // One comparison for each epoch key, because several owners may share one.
    let mut epochs = BTreeMap::new();
    let (mut when, mut then, mut otherwise) = (Vec::new(), Vec::new(), Vec::new());
    let mut entering = Vec::new();
    for place in places {
        let revision = place.state().revision;
        match revision {
            Some(revision) => when.push(Compare::create_revision(place.key.clone(), CompareOp::Equal, revision)),
            None => {
                let epoch = place.begin_entry();
                epochs.insert((place.lease.id, place.shard), place.compare_epoch(epoch));
                when.extend(place.is_free());
                then.push(place.put());
                entering.push(place);
            }
        }
        let all = place.range.all();
        otherwise.extend([
            TxnOp::get(place.key.clone(), Some(GetOptions::new().with_keys_only())),
            TxnOp::get(place.lease.epoch_key(place.shard), None),
            TxnOp::get(all.from.clone(), Some(oldest(&all))),
        ]);
    }
    when.extend(epochs.into_values());
    let mut answers = connection.txn(Txn::new().when(when).and_then(then).or_else(otherwise)).await?;
    entering.iter().for_each(|place| place.state().entering = false);
    if answers.succeeded {
        entering.iter().for_each(|place| place.state().revision = Some(answers.revision));
        return Ok(BatchResult::AllHeld);
    }
    let mut found = BatchResult::Retry;
    for place in places {
        let (own, now, first) = (answers.first_key()?, answers.first_key()?, answers.first_key()?);
        place.note_epoch(now.map_or(0, |epoch| epoch.mod_revision()));
        let own = own.filter(|own| place.is_mine(own)).map(|own| own.create_revision());
        place.state().revision = own;
        let Some(first) = first.filter(|first| first.key() != place.key || own.is_none()) else { continue };
        check_has_lease(&first)?;
        if place.range.read(first.key()).0 != KeyKind::Exclusive {
            return Err(mode_conflict());
        }
        found = BatchResult::Taken;
    }
    Ok(found)
}
