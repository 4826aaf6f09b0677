//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use dlock_contract::{
    BreakRecord, Cursor, Error, ErrorKind, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Note, Page,
    Result,
};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use futures::future::BoxFuture;

use super::connection::Connection;
use super::enter::oldest;
use super::fault::Fault;
use super::names::{KeyKind, Layout, LockRange, lease_of, note_of, read_value};
use super::store::Etcd;

/// The record of a broken hold is kept for at least this time, in seconds.
const MIN_RECORD_SECONDS: u64 = 60;

/// The prefix of all records. No namespace can contain `!`. An account with the right to `dl1:` may write it.
const RECORD_PREFIX: &str = "dl1:!broken:";

/// A holder's key.
struct HolderKey {
    key: KeyValue,
    /// The permit's slot, and the key that marks it.
    mark: Option<(u32, Vec<u8>)>,
}

impl HolderKey {
    /// The hold's id. `None` if a foreign client holds the lock, or if the key is kept after its hold's end.
    fn id(&self, range: &LockRange) -> Option<HoldId> {
        let lease = lease_of(range.read(self.key.key()).1)?;
        let (id, _) = read_value(self.key.value())?;
        (lease == self.key.lease()).then_some(id)
    }
}

pub(super) async fn look(connection: &Connection, range: &LockRange) -> Result<LockState, Fault> {
    let (held, waiters) = holders(connection, range).await?;
    let mut left = HashMap::new();
    for held in &held {
        if let Entry::Vacant(entry) = left.entry(held.key.lease()) {
            let told = connection.time_to_live(held.key.lease()).await?;
            entry.insert(told.map(|(left, _)| Duration::from_secs(left)));
        }
    }
    let seen = held.iter().map(|held| holder(range, held, left.get(&held.key.lease()).copied().flatten())).collect();
    Ok(LockState::new(seen, Some(waiters)))
}

/// The keys of the holders, the oldest first, and the number of waiters.
async fn holders(connection: &Connection, range: &LockRange) -> Result<(Vec<HolderKey>, u64), Fault> {
    let all = range.all();
    let mut found = connection.get(&all.from, oldest(&all)).await?;
    let keys = usize::try_from(found.count()).unwrap_or_default();
    let Some(first) = found.take_kvs().into_iter().next() else { return Ok((Vec::new(), 0)) };
    if let KeyKind::Exclusive | KeyKind::Write = range.read(first.key()).0 {
        return Ok((vec![HolderKey { key: first, mark: None }], count(keys - 1)));
    }
    let sorted = all.options().with_sort(SortTarget::Create, SortOrder::Ascend);
    let all = connection.get(&all.from, sorted).await?.take_kvs();
    let is_mark = |key: &KeyValue| matches!(range.read(key.key()).0, KeyKind::Slot(_));
    let (marks, places): (Vec<_>, Vec<_>) = all.into_iter().partition(is_mark);
    let mut slots = HashMap::new();
    for mark in marks {
        if let KeyKind::Slot(slot) = range.read(mark.key()).0 {
            let whose = mark.value().split(|byte| *byte == b' ').next().unwrap_or_default();
            slots.insert(whose.to_vec(), (slot, mark.key().to_vec()));
        }
    }
    let keys = places.len();
    let is_inside = |at: usize, key: &KeyValue| match range.read(key.key()).0 {
        KeyKind::Read => true,
        KeyKind::Permit(most) => usize::try_from(most).is_ok_and(|most| at < most),
        _ => false,
    };
    let inside = places.into_iter().enumerate().take_while(|(at, key)| is_inside(*at, key));
    let held: Vec<_> = inside
        .map(|(_, key)| {
            let mark = slots.remove(range.read(key.key()).1.as_bytes());
            HolderKey { key, mark }
        })
        .collect();
    let waiters = count(keys - held.len());
    Ok((held, waiters))
}

/// The notes of the first waiters, the oldest first.
async fn waiters(connection: &Connection, range: &LockRange, limit: usize) -> Result<Vec<Note>, Fault> {
    let held = holders(connection, range).await?.0.len();
    let all = range.all();
    // Each holder has a key, and perhaps a mark of its slot.
    let most = i64::try_from(limit.saturating_add(2 * held)).unwrap_or(i64::MAX);
    let sorted = all.options().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(most);
    let keys = connection.get(&all.from, sorted).await?.take_kvs();
    let places = keys.iter().filter(|key| !matches!(range.read(key.key()).0, KeyKind::Slot(_)));
    Ok(places.skip(held).take(limit).map(|key| note_of(range, key)).collect())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn holder(range: &LockRange, held: &HolderKey, left: Option<Duration>) -> Holder {
    if lease_of(range.read(held.key.key()).1).is_none() {
        return Holder::foreign_client(left);
    }
    Holder::new(note_of(range, &held.key)).with(|holder| {
        holder.id = held.id(range);
        holder.token = u64::try_from(held.key.create_revision()).ok();
        holder.lease_left = left;
        holder.slot = held.mark.as_ref().map(|(slot, _)| *slot);
    })
}

impl Inspect for Etcd {
    /// With literal names this lists the locks of foreign clients too. They have no namespace, so the prefix is that of the
    /// plain name.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let prefix = match self.layout {
                Layout::Own => listing.name_prefix()?.replace('/', "%2F"),
                Layout::Literal => listing.prefix.clone(),
            };
            let after = listing.after.as_ref().map_or("", Cursor::as_str);
            // This sorts after all names with the prefix, because no UTF-8 text has this byte.
            let end = [prefix.as_bytes(), b"\xff"].concat();
            let limit = listing.limit();
            let range = GetOptions::new().with_range(end).with_keys_only();
            let range = range.with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            // An empty key means "all keys" to the server, or an error.
            let from = match prefix.as_str().max(after) {
                "" => b"\0".to_vec(),
                from => from.as_bytes().to_vec(),
            };
            let found = self.connections.get().await?.get(&from, range).await?;
            let mut locks: Vec<LockKey> = Vec::new();
            let mut behind = None;
            for key in found.kvs() {
                // Skip keys that are no locks.
                let Some((lock, end)) = self.layout.lock_of(key.key()) else { continue };
                behind = String::from_utf8(end).ok();
                if locks.last() != Some(&lock) {
                    locks.push(lock);
                }
            }
            let last = found.kvs().last().filter(|_| found.more());
            let next = match (behind, last) {
                // Only in dlock's own layout are all keys of a lock next to each other.
                (Some(behind), Some(_)) if self.layout == Layout::Own => Some(behind),
                (_, Some(last)) => Some(format!("{}\0", text_of(last)?)),
                (_, None) => None,
            };
            Ok(Page::new(locks, next.map(Cursor::new)))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let range = self.layout.range(key)?;
            Ok(break_hold(&self.connections.get().await?, &range, id, record).await?)
        })
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        Box::pin(async move {
            let range = self.layout.range(key)?;
            Ok(Some(waiters(&self.connections.get().await?, &range, limit).await?))
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
    format!("{RECORD_PREFIX}{id}")
}

/// Deletes the holder's key and puts the record, in one transaction that compares the key's create revision.
async fn break_hold(
    connection: &Connection,
    range: &LockRange,
    id: HoldId,
    record: &BreakRecord,
) -> Result<bool, Fault> {
    let (held, _) = holders(connection, range).await?;
    let is_it = |held: &HolderKey| held.id(range) == Some(id);
    let Some(held) = held.into_iter().find(is_it) else { return Ok(false) };
    let key = held.key;
    let ttl = connection
        .time_to_live(key.lease())
        .await?
        .map_or(MIN_RECORD_SECONDS, |(_, granted)| granted.max(MIN_RECORD_SECONDS));
    let lease = connection.grant(i64::try_from(ttl).unwrap_or(i64::MAX)).await?;
    let same = [
        Compare::create_revision(key.key(), CompareOp::Equal, key.create_revision()),
        Compare::lease(key.key(), CompareOp::Equal, key.lease()),
    ];
    let record = TxnOp::put(record_name(id), record.as_str(), Some(PutOptions::new().with_lease(lease.id())));
    let mark = held.mark.map(|(_, mark)| TxnOp::delete(mark, None));
    let then: Vec<_> = [TxnOp::delete(key.key(), None), record].into_iter().chain(mark).collect();
    let broken = connection.txn(Txn::new().when(same).and_then(then)).await?.succeeded;
    if !broken {
        // The lock was freed in between. If this fails, the record's lease ends by itself.
        let _ = connection.revoke(lease.id()).await;
    }
    Ok(broken)
}
