//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use dlock_contract::{
    BreakRecord, Cursor, Error, ErrorKind, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Note, Page,
    Result,
};
use dlock_store::detached;
use futures::future::{BoxFuture, join_all};
use zookeeper_client::{Client, Error as ClientError, Stat};

use crate::break_hold;
use crate::lock_nodes::{TakenSlot, slots, wait_queue};
use crate::queue::{Contender, NodeMode};
use crate::server::fault::fault;
use crate::server::node_data;
use crate::server::paths::Paths;
use crate::store::ZooKeeper;

/// The most buckets that one call lists.
const MAX_BUCKETS: u8 = 64;

/// The holders of the lock at this path.
pub(crate) async fn look(client: &Client, path: &str) -> Result<LockState> {
    let queue = wait_queue(client, path).await?;
    let holders: Vec<_> = queue.holders().collect();
    let waiters = u64::try_from(queue.contenders.len() - holders.len()).ok();
    let slots = slots(client, path, &queue).await?;
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

/// The notes of the first waiters. One request for each of them, all sent at once.
async fn waiters(client: &Client, path: &str, limit: usize) -> Result<Vec<Note>> {
    let queue = wait_queue(client, path).await?;
    let held = queue.holders().count();
    let waiting: Vec<_> = queue.contenders.iter().skip(held).take(limit).collect();
    let read = waiting.iter().map(|contender| client.get_data(&format!("{path}/{}", contender.name)));
    let mut notes = Vec::new();
    for (contender, found) in waiting.iter().zip(join_all(read).await) {
        match found {
            Ok((data, _)) => {
                let ours = node_data::note(&data).filter(|_| contender.owner.is_some());
                notes.push(ours.unwrap_or_else(|| Note::from_stored(Note::FOREIGN_CLIENT)));
            }
            Err(ClientError::NoNode) => {}
            Err(error) => return Err(fault(&error)),
        }
    }
    Ok(notes)
}

fn holder(contender: &Contender, data: &[u8], stat: &Stat, slots: &[TakenSlot]) -> Holder {
    let Some((note, owner)) = node_data::note(data).zip(contender.owner) else { return Holder::foreign_client(None) };
    let slot = slots.iter().find(|(_, owner, _)| contender.name.as_bytes().starts_with(owner));
    let token = match contender.mode {
        NodeMode::Permit(_) => slot.map(|(_, _, token)| *token),
        NodeMode::Read | NodeMode::Write => Some(stat.mzxid),
        NodeMode::Exclusive | NodeMode::Alone => Some(stat.czxid),
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
        let shared = self.shared.clone();
        detached(async move {
            let prefix = listing.name_prefix()?;
            if shared.paths.is_literal() {
                return Err(Error::new(
                    ErrorKind::Unsupported { need: "a store without keys=literal".into() },
                    "with keys=literal, locks can be at any path of ZooKeeper, so they cannot be listed",
                ));
            }
            let client = shared.leases.any().await?.client().await?;
            list(&client, &shared.paths, &listing, &prefix).await
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        let (shared, key, record) = (self.shared.clone(), key.clone(), record.clone());
        detached(async move {
            let path = shared.paths.lock(&key)?;
            let client = shared.leases.any().await?.client().await?;
            break_hold::break_hold(&client, &shared, &path, id, &record).await
        })
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        let (shared, key) = (self.shared.clone(), key.clone());
        detached(async move {
            let path = shared.paths.lock(&key)?;
            waiters(&shared.leases.any().await?.client().await?, &path, limit).await.map(Some)
        })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        let (shared, id) = (self.shared.clone(), HoldId::of(&hold.claim.owner));
        detached(
            async move { break_hold::record(&shared.leases.any().await?.client().await?, &shared.paths, id).await },
        )
    }
}

/// One page: the held locks of each bucket, in the order of their names.
async fn list(client: &Client, paths: &Paths, listing: &Listing, prefix: &str) -> Result<Page> {
    let after = listing.after.as_ref().map_or("", Cursor::as_str);
    let (first, after) = after.split_once('/').unwrap_or(("00", ""));
    let wrong = || Error::config("after", "this cursor does not come from a listing of ZooKeeper");
    let first = u8::from_str_radix(first, 16).map_err(|_| wrong())?;
    let last = first.saturating_add(MAX_BUCKETS - 1);
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
            if wait_queue(client, &format!("{path}/{name}")).await?.holders().next().is_some() {
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
