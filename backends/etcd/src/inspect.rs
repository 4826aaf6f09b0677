//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::collections::HashMap;
use std::time::Duration;

use dlock_contract::{
    BreakRecord, Cursor, Error, ErrorKind, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Note, Owner,
    Page, Result,
};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use futures::future::BoxFuture;

use super::connection::Connection;
use super::enter::oldest;
use super::fault::Fault;
use super::names::{Kind, Layout, Line, owner_of};
use super::store::Etcd;

/// The shortest time for which the record of a broken hold is kept, in seconds.
const LEAST: u64 = 60;

/// The beginning of the names of all records; no namespace has such a character. Accounts have the right to it with
/// `dl1:`.
const RECORDS: &str = "dl1:!broken:";

/// A holder's key.
struct Held {
    key: KeyValue,
    /// The mark of its slot.
    mark: Option<(u32, Vec<u8>)>,
}

impl Held {
    /// The owner, unless another tool holds the lock or the key is kept after its hold's end.
    fn owner(&self, line: &Line) -> Option<Owner> {
        let (lease, owner) = owner_of(line.read(self.key.key()).1)?;
        (lease == self.key.lease()).then_some(owner)
    }
}

pub(super) async fn look(connection: &Connection, line: &Line) -> Result<LockState, Fault> {
    let (held, waiters) = holders(connection, line).await?;
    let mut seen = Vec::with_capacity(held.len());
    let mut left = HashMap::new();
    for held in held {
        let lease = held.key.lease();
        if !left.contains_key(&lease) {
            left.insert(lease, connection.time_to_live(lease).await?.map(|(left, _)| Duration::from_secs(left)));
        }
        seen.push(holder(line, &held, left.get(&lease).copied().flatten()));
    }
    Ok(LockState::new(seen, Some(waiters)))
}

/// The keys of the holders, the first grant first, and the number of waiters.
async fn holders(connection: &Connection, line: &Line) -> Result<(Vec<Held>, u64), Fault> {
    let all = line.all();
    let mut found = connection.get(&all.from, oldest(&all)).await?;
    let keys = usize::try_from(found.count()).unwrap_or_default();
    let Some(first) = found.take_kvs().into_iter().next() else { return Ok((Vec::new(), 0)) };
    if let Kind::Exclusive | Kind::Write = line.read(first.key()).0 {
        return Ok((vec![Held { key: first, mark: None }], count(keys - 1)));
    }
    let sorted = all.options().with_sort(SortTarget::Create, SortOrder::Ascend);
    let all = connection.get(&all.from, sorted).await?.take_kvs();
    let is_mark = |key: &KeyValue| matches!(line.read(key.key()).0, Kind::Slot(_));
    let (marks, places): (Vec<_>, Vec<_>) = all.into_iter().partition(is_mark);
    let mut slots = HashMap::new();
    for mark in marks {
        if let Kind::Slot(slot) = line.read(mark.key()).0 {
            slots.insert(mark.value().to_vec(), (slot, mark.key().to_vec()));
        }
    }
    let keys = places.len();
    let is_inside = |at: usize, key: &KeyValue| match line.read(key.key()).0 {
        Kind::Read => true,
        Kind::Permit(most) => usize::try_from(most).is_ok_and(|most| at < most),
        _ => false,
    };
    let inside = places.into_iter().enumerate().take_while(|(at, key)| is_inside(*at, key));
    let held: Vec<_> = inside
        .map(|(_, key)| {
            let mark = slots.remove(line.read(key.key()).1.as_bytes());
            Held { key, mark }
        })
        .collect();
    let waiters = count(keys - held.len());
    Ok((held, waiters))
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn holder(line: &Line, held: &Held, left: Option<Duration>) -> Holder {
    if owner_of(line.read(held.key.key()).1).is_none() {
        return Holder::another_tool(left);
    }
    Holder::new(note_of(line, &held.key)).with(|holder| {
        holder.id = held.owner(line).map(|owner| HoldId::of(&owner));
        holder.token = u64::try_from(held.key.create_revision()).ok();
        holder.lease_left = left;
        holder.slot = held.mark.as_ref().map(|(slot, _)| *slot);
    })
}

/// The note of a contender's key.
pub(super) fn note_of(line: &Line, key: &KeyValue) -> Note {
    match owner_of(line.read(key.key()).1) {
        Some(_) => Note::from_stored(&String::from_utf8_lossy(key.value())),
        None => Note::from_stored(Note::ANOTHER_TOOL),
    }
}

impl Inspect for Etcd {
    /// Under literal names other tools' locks too. They have no namespace: the prefix is that of the plain name.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let prefix = match self.layout {
                Layout::Own => listing.name_prefix()?.replace('/', "%2F"),
                Layout::Literal => listing.prefix.clone(),
            };
            let after = listing.after.as_ref().map_or("", Cursor::as_str);
            // Behind all names that begin with the prefix: no UTF-8 text has this byte.
            let end = [prefix.as_bytes(), b"\xff"].concat();
            let limit = listing.limit();
            let range = GetOptions::new().with_range(end).with_keys_only();
            let range = range.with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            // An empty key would be a request for all keys, or an error.
            let from = match prefix.as_str().max(after) {
                "" => b"\0".to_vec(),
                from => from.as_bytes().to_vec(),
            };
            let found = self.connections.get().await?.get(&from, range).await?;
            let mut locks: Vec<LockKey> = Vec::new();
            let mut behind = None;
            for key in found.kvs() {
                // Keys of other locks, and queues that were listed before.
                let Some((lock, end)) = self.layout.lock_of(key.key()) else { continue };
                behind = String::from_utf8(end).ok();
                if locks.last() != Some(&lock) {
                    locks.push(lock);
                }
            }
            let last = found.kvs().last().filter(|_| found.more());
            let next = match (behind, last) {
                // Only in a layout of its own are all keys of a lock beside each other.
                (Some(behind), Some(_)) if self.layout == Layout::Own => Some(behind),
                (_, Some(last)) => Some(format!("{}\0", text_of(last)?)),
                (_, None) => None,
            };
            Ok(Page::new(locks, next.map(Cursor::new)))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let line = self.layout.line(key)?;
            Ok(break_hold(&self.connections.get().await?, &line, id, record).await?)
        })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move {
            let name = record_name(HoldId::of(&hold.claim.owner));
            let found = self.connections.get().await?.get(name.as_bytes(), GetOptions::new()).await?;
            let record = found.kvs().first();
            Ok(record.map(|record| BreakRecord::from_stored(&String::from_utf8_lossy(record.value()))))
        })
    }
}

fn text_of(key: &KeyValue) -> Result<&str> {
    let text = "a key of the store is not UTF-8, so the listing cannot go on behind it; list with another prefix";
    key.key_str().map_err(|_| Error::new(ErrorKind::Protocol, text))
}

fn record_name(id: HoldId) -> String {
    format!("{RECORDS}{id}")
}

/// Deletes the holder's key and puts the record, in one transaction that compares the key's create revision.
async fn break_hold(connection: &Connection, line: &Line, id: HoldId, record: &BreakRecord) -> Result<bool, Fault> {
    let (held, _) = holders(connection, line).await?;
    let is_it = |held: &Held| held.owner(line).is_some_and(|owner| HoldId::of(&owner) == id);
    let Some(held) = held.into_iter().find(is_it) else { return Ok(false) };
    let key = held.key;
    let ttl = connection.time_to_live(key.lease()).await?.map_or(LEAST, |(_, granted)| granted.max(LEAST));
    let lease = connection.grant(i64::try_from(ttl).unwrap_or(i64::MAX)).await?;
    let same = [
        Compare::create_revision(key.key(), CompareOp::Equal, key.create_revision()),
        Compare::lease(key.key(), CompareOp::Equal, key.lease()),
    ];
    let record = TxnOp::put(record_name(id), record.as_str(), Some(PutOptions::new().with_lease(lease.id())));
    let mark = held.mark.map(|(_, mark)| TxnOp::delete(mark, None));
    let then: Vec<_> = [TxnOp::delete(key.key(), None), record].into_iter().chain(mark).collect();
    let broken = connection.txn(Txn::new().when(same).and_then(then)).await?.succeeded();
    if !broken {
        // The lock was freed meanwhile. The lease of the record also ends by itself.
        let _ = connection.revoke(lease.id()).await;
    }
    Ok(broken)
}
