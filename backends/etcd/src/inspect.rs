//! Inspection: the holders of a lock, listings of held locks, and breaking a hold.

use std::time::Duration;

use dlock_contract::{BreakRecord, Cursor, Hold, HoldId, Holder, Inspect, Listing, LockKey, LockState, Page, Result};
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp};
use futures::future::BoxFuture;

use super::Etcd;
use super::connection::Connection;
use super::fault::Fault;
use super::line::{Line, lock_of};

/// The shortest time for which the record of a broken hold is kept, in seconds.
const LEAST: u64 = 60;

/// The beginning of the names of all records; no namespace has such a character. Accounts have the right to it with
/// `dl1:`.
const RECORDS: &str = "dl1:!broken:";

pub(super) async fn look(connection: &Connection, key: &LockKey) -> Result<LockState, Fault> {
    let line = Line::of(key);
    let (Some(first), keys) = line.holder(connection).await? else {
        return Ok(LockState::new(Vec::new(), Some(0)));
    };
    let left = connection.time_to_live(first.lease()).await?.map(|(left, _)| Duration::from_secs(left));
    Ok(LockState::new(vec![holder(&line, &first, left)], Some(keys.saturating_sub(1))))
}

fn holder(line: &Line, first: &KeyValue, left: Option<Duration>) -> Holder {
    let Some(owner) = line.owner_of(first.key()) else { return Holder::another_tool(left) };
    Holder::new(line.note_of(first)).with(|holder| {
        holder.id = Some(HoldId::of(&owner));
        holder.token = u64::try_from(first.create_revision()).ok();
        holder.lease_left = left;
    })
}

impl Inspect for Etcd {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let prefix = listing.name_prefix()?.replace('/', "%2F");
            let after = listing.after.as_ref().map_or("", Cursor::as_str);
            // Names are ASCII, so this is behind all that begin with the prefix.
            let end = format!("{prefix}\u{7f}");
            let limit = listing.limit();
            let range = GetOptions::new().with_range(end).with_keys_only();
            let range = range.with_limit(i64::try_from(limit).unwrap_or(i64::MAX));
            let connection = self.connections.get().await?;
            let found = connection.get(prefix.as_str().max(after).as_bytes(), range).await?;
            let mut locks: Vec<LockKey> = Vec::new();
            let mut behind = None;
            for key in found.kvs() {
                // Keys of other locks, and queues that were listed before.
                let Some((lock, end)) = lock_of(key.key()) else { continue };
                behind = String::from_utf8(end).ok();
                if locks.last() != Some(&lock) {
                    locks.push(lock);
                }
            }
            let last = found.kvs().last().map(|key| format!("{}\0", String::from_utf8_lossy(key.key())));
            let next = behind.or(last).filter(|_| found.more()).map(Cursor::new);
            Ok(Page::new(locks, next))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(break_hold(&self.connections.get().await?, key, id, record).await?) })
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

fn record_name(id: HoldId) -> String {
    format!("{RECORDS}{id}")
}

/// Deletes the holder's key and puts the record, in one transaction that compares the key's create revision.
async fn break_hold(connection: &Connection, key: &LockKey, id: HoldId, record: &BreakRecord) -> Result<bool, Fault> {
    let line = Line::of(key);
    let (Some(first), _) = line.holder(connection).await? else { return Ok(false) };
    if line.owner_of(first.key()).is_none_or(|owner| HoldId::of(&owner) != id) {
        return Ok(false);
    }
    let ttl = connection.time_to_live(first.lease()).await?.map_or(LEAST, |(_, granted)| granted.max(LEAST));
    let lease = connection.grant(i64::try_from(ttl).unwrap_or(i64::MAX)).await?;
    let same = Compare::create_revision(first.key(), CompareOp::Equal, first.create_revision());
    let record = TxnOp::put(record_name(id), record.as_str(), Some(PutOptions::new().with_lease(lease.id())));
    let then = [TxnOp::delete(first.key(), None), record];
    let broken = connection.txn(Txn::new().when([same]).and_then(then)).await?.succeeded();
    if !broken {
        // The lock was freed meanwhile. The lease of the record also ends by itself.
        let _ = connection.revoke(lease.id()).await;
    }
    Ok(broken)
}
