//! Several locks in one transaction, all or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use dlock_contract::{Claim, Error, ErrorKind, Result, Together};
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::connection::Connection;
use super::enter::{EPOCH_READS, oldest, other_family};
use super::fault::Fault;
use super::names::Kind;
use super::place::{Parts, Place, no_stranger};
use super::store::{Etcd, granted, is_plain};

/// The most locks of one request. Each needs three reads if the request is refused, and the server's own bound is 128.
const MOST: usize = 42;

/// What one transaction found.
enum Found {
    /// All locks are the claims' own.
    All,
    /// One of them is another owner's.
    Taken,
    /// The store was otherwise than this process knew, and is known now.
    Again,
}

impl Etcd {
    pub(super) async fn attempt_all(&self, claims: &[Arc<Claim>]) -> Result<Together> {
        if !(2..=MOST).contains(&claims.len()) || !claims.iter().all(|claim| is_plain(claim)) {
            return Ok(Together::OneByOne);
        }
        let connection = self.connections.get().await.map_err(Error::never_sent)?;
        for _ in 0..EPOCH_READS {
            let mut places = Vec::with_capacity(claims.len());
            for claim in claims {
                places.push(self.place(&connection, claim).await?);
            }
            match enter(&connection, claims, &places).await {
                Ok(Found::All) => {
                    let holds = claims.iter().zip(&places).map(|(claim, place)| granted(claim, place));
                    return holds.collect::<Result<_>>().map(Together::Acquired);
                }
                Ok(Found::Taken) => {
                    self.all_step_back(claims, &places).await?;
                    return Ok(Together::Contended);
                }
                Ok(Found::Again) => {}
                Err(Fault::LeaseGone) => {
                    for (claim, place) in claims.iter().zip(&places) {
                        self.leases.bury(&place.lease);
                        self.forget(place, claim.owner);
                    }
                }
                Err(fault) => {
                    let error = Error::from(fault);
                    if error.kind() == &ErrorKind::KeyConflict {
                        self.all_step_back(claims, &places).await?;
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::new(ErrorKind::Outage, "etcd changed too often while several locks were asked for together"))
    }

    async fn all_step_back(&self, claims: &[Arc<Claim>], places: &[Arc<Place>]) -> Result<()> {
        for (claim, place) in claims.iter().zip(places) {
            // The others are held already.
            if place.known().revision.is_none() {
                self.step_back(claim, place).await?;
            }
        }
        Ok(())
    }
}

async fn enter(connection: &Connection, claims: &[Arc<Claim>], places: &[Arc<Place>]) -> Result<Found, Fault> {
    // One comparison for each epoch, since many owners may share one.
    let mut epochs = BTreeMap::new();
    let (mut when, mut then, mut otherwise) = (Vec::new(), Vec::new(), Vec::new());
    let mut asks = Vec::new();
    for (claim, place) in claims.iter().zip(places) {
        let revision = place.known().revision;
        match revision {
            Some(revision) => when.push(Compare::create_revision(place.key.clone(), CompareOp::Equal, revision)),
            None => {
                let epoch = place.ask_under_epoch();
                epochs.insert((place.lease.id, place.shard), place.same_epoch(epoch));
                when.extend(place.is_free());
                then.push(place.put(claim));
                asks.push(place);
            }
        }
        let all = place.line.all();
        otherwise.extend([
            TxnOp::get(place.key.clone(), Some(GetOptions::new().with_keys_only())),
            TxnOp::get(place.lease.epoch_key(place.shard), None),
            TxnOp::get(all.from.clone(), Some(oldest(&all))),
        ]);
    }
    when.extend(epochs.into_values());
    let answer = connection.txn(Txn::new().when(when).and_then(then).or_else(otherwise)).await?;
    asks.iter().for_each(|place| place.known().asked = false);
    let mut parts = Parts::of(&answer);
    if answer.succeeded() {
        asks.iter().for_each(|place| place.known().revision = Some(parts.revision));
        return Ok(Found::All);
    }
    let mut found = Found::Again;
    for place in places {
        let (own, now, first) = (parts.first()?, parts.first()?, parts.first()?);
        place.learn_epoch(now.map_or(0, |epoch| epoch.mod_revision()));
        let own = own.filter(|own| place.is_mine(own)).map(|own| own.create_revision());
        place.known().revision = own;
        let Some(first) = first.filter(|first| first.key() != place.key || own.is_none()) else { continue };
        no_stranger(&first)?;
        if place.line.read(first.key()).0 != Kind::Exclusive {
            return Err(other_family());
        }
        found = Found::Taken;
    }
    Ok(found)
}
