//! Listing the locks, and breaking a hold.

use dlock_contract::{BreakRecord, Cursor, Hold, HoldId, Inspect, Listing, LockKey, Note, Page, Result};
use futures::future::BoxFuture;

use super::Memory;

impl Inspect for Memory {
    /// The table has no order, so each page looks for the lowest names above its cursor. It is a table in memory.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let prefix = listing.name_prefix()?;
            let (locks, now) = (self.lock(), self.clock.now());
            let after = listing.after.as_ref().map_or("", Cursor::as_str);
            let is_listed = |key: &&LockKey| key.as_str().starts_with(&prefix) && key.as_str() > after;
            let held = locks.by_key.iter().filter(|(_, lock)| lock.is_held(now)).map(|(key, _)| key);
            let mut keys: Vec<_> = held.filter(is_listed).cloned().collect();
            drop(locks);
            keys.sort_unstable();
            let limit = listing.limit();
            let next = (keys.len() > limit).then(|| Cursor::new(keys[limit - 1].as_str()));
            keys.truncate(limit);
            Ok(Page::new(keys, next))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let now = self.clock.now();
            // Before the hold ends: its holder may hear of that at once.
            let end = self.lock().by_key.get(key).and_then(|lock| lock.end_of(id));
            let Some(end) = end else { return Ok(false) };
            self.lock().broken.keep(id, record, end, now);
            Ok(self.change(key, |lock, _| lock.break_hold(id)))
        })
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        Box::pin(async move { Ok(Some(self.lock().by_key.get(key).map_or_else(Vec::new, |lock| lock.waiting(limit)))) })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move {
            let id = HoldId::of(&hold.claim.owner);
            Ok(self.lock().broken.record_of(&id))
        })
    }
}
