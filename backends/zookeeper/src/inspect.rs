//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use dlock_contract::{
    BreakRecord, Cursor, Error, ErrorKind, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Page, Result,
};
use futures::FutureExt;
use futures::future::{BoxFuture, join, join_all};
use zookeeper_client::{Client, Error as ClientError, Stat};

use crate::breaks;
use crate::data;
use crate::fault::fault;
use crate::line::{Contender, Kind, Line, slot_name};
use crate::paths::Paths;
use crate::store::ZooKeeper;
use crate::task::to_its_end;

/// How many buckets one call looks at, at most.
const BUCKETS: u8 = 64;

/// Who holds the lock at this path.
pub(crate) async fn look(client: &Client, path: &str) -> Result<LockState> {
    let line = line(client, path).await?;
    let holders: Vec<_> = line.holders().collect();
    let waiters = u64::try_from(line.contenders.len() - holders.len()).ok();
    let slots = slots(client, path, &line).await?;
    let read = holders.iter().map(|contender| client.get_data(&format!("{path}/{}", contender.name)));
    let mut told = Vec::new();
    for (contender, found) in holders.iter().zip(join_all(read).await) {
        match found {
            Ok((data, stat)) => told.push(holder(contender, &data, &stat, &slots)),
            Err(ClientError::NoNode) => {}
            Err(error) => return Err(fault(&error)),
        }
    }
    Ok(LockState::new(told, waiters))
}

/// The line, as the leader knows it.
pub(crate) async fn line(client: &Client, path: &str) -> Result<Line> {
    let (synced, listed) = join(client.sync(path), client.list_children(path)).await;
    synced.map_err(|error| fault(&error))?;
    match listed {
        Ok(children) => Ok(Line::of(&children)),
        Err(ClientError::NoNode) => Ok(Line::default()),
        Err(error) => Err(fault(&error)),
    }
}

/// A number that is taken: the number, the beginning of its holder's name, and the token.
pub(crate) type Slot = (u32, Vec<u8>, i64);

pub(crate) async fn slots(client: &Client, path: &str, line: &Line) -> Result<Vec<Slot>> {
    let read =
        line.slots().iter().map(async |slot| (slot, client.get_data(&format!("{path}/{}", slot_name(*slot))).await));
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

fn holder(contender: &Contender, data: &[u8], stat: &Stat, slots: &[Slot]) -> Holder {
    let Some((note, owner)) = data::note(data).zip(contender.owner) else { return Holder::another_tool(None) };
    let slot = slots.iter().find(|(_, owner, _)| contender.name.as_bytes().starts_with(owner));
    let token = match contender.kind {
        Kind::Permit(_) => slot.map(|(_, _, token)| *token),
        Kind::Read | Kind::Write => Some(stat.mzxid),
        Kind::Exclusive | Kind::Alone => Some(stat.czxid),
    };
    Holder::new(note).with(|holder| {
        holder.id = Some(HoldId::of(&owner));
        holder.token = token.and_then(|token| u64::try_from(token).ok());
        holder.slot = slot.map(|(slot, _, _)| *slot);
    })
}

impl Inspect for ZooKeeper {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        let listing = listing.clone();
        let core = self.core.clone();
        to_its_end(async move {
            let prefix = listing.name_prefix()?;
            if core.paths.is_literal() {
                return Err(Error::new(
                    ErrorKind::Unsupported { need: "a store without keys=literal".into() },
                    "locks under the names of other tools stand anywhere in ZooKeeper and cannot be listed",
                ));
            }
            let client = core.leases.any().await?.client().await?;
            list(&client, &core.paths, &listing, &prefix).await
        })
        .boxed()
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        let (core, key, record) = (self.core.clone(), key.clone(), record.clone());
        to_its_end(async move {
            let path = core.paths.lock(&key)?;
            let client = core.leases.any().await?.client().await?;
            breaks::break_hold(&client, &core, &path, id, &record).await
        })
        .boxed()
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        let (core, id) = (self.core.clone(), HoldId::of(&hold.claim.owner));
        to_its_end(async move { breaks::record(&core.leases.any().await?.client().await?, &core.paths, id).await })
            .boxed()
    }
}

/// One page: the names of each bucket in their order, and of these the ones whose line has a holder.
async fn list(client: &Client, paths: &Paths, listing: &Listing, prefix: &str) -> Result<Page> {
    let after = listing.after.as_ref().map_or("", Cursor::as_str);
    let (first, after) = after.split_once('/').unwrap_or(("00", ""));
    let wrong = || Error::config("after", "this is no cursor of a listing of ZooKeeper");
    let first = u8::from_str_radix(first, 16).map_err(|_| wrong())?;
    let last = first.saturating_add(BUCKETS - 1);
    let (mut locks, mut looked) = (Vec::new(), 0);
    for bucket in first..=last {
        let path = paths.bucket(&listing.namespace, bucket);
        let mut names = match client.list_children(&path).await {
            Ok(names) => names,
            Err(ClientError::NoNode) => continue,
            Err(error) => return Err(fault(&error)),
        };
        names.sort();
        let after = if bucket == first { after } else { "" };
        for name in names.iter().filter(|name| name.as_str() > after) {
            let Some(key) = Paths::key_of(&listing.namespace, name).filter(|key| key.as_str().starts_with(prefix))
            else {
                continue;
            };
            if line(client, &format!("{path}/{name}")).await?.holders().next().is_some() {
                locks.push(key);
            }
            looked += 1;
            if looked >= listing.limit() {
                return Ok(Page::new(locks, Some(Cursor::new(format!("{bucket:02x}/{name}")))));
            }
        }
    }
    let next = last.checked_add(1).map(|bucket| Cursor::new(format!("{bucket:02x}/")));
    Ok(Page::new(locks, next))
}
