//! Listing and breaking holds in the test kit's store.

use dlock_contract::{BreakRecord, Hold, HoldId, Inspect, Listing, LockKey, Note, Page, Result};
use futures::future::BoxFuture;

use super::Switchable;

impl Inspect for Switchable {
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move { self.up()?.list(listing).await })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.up()?.break_hold(key, id, record).await })
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        Box::pin(async move { self.up()?.waiters(key, limit).await })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move { self.up()?.record_of(hold).await })
    }
}
