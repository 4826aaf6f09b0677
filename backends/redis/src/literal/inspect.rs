//! Inspection under literal names: foreign clients' locks are listed too.

use dlock_contract::{BreakRecord, Hold, HoldId, Inspect, Listing, LockKey, Note, Page, Result};
use futures::future::BoxFuture;

use crate::literal::store::Literal;
use crate::lock::inspect::{listed_key, lock_pattern};

impl Inspect for Literal {
    /// Lists the locks of foreign clients too. Literal names have no namespace, so the prefix is that of the plain
    /// name. The listing reads every string in the database with such a name.
    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let (names, next) = self.redis.scan(&lock_pattern(listing, true)?, listing).await?;
            Ok(Page::new(names.into_iter().filter_map(|name| listed_key(name, true)).collect(), next))
        })
    }

    fn break_hold<'a>(&'a self, key: &'a LockKey, id: HoldId, record: &'a BreakRecord) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.redis.break_one(&key.literal()?, id, record).await })
    }

    fn waiters<'a>(&'a self, key: &'a LockKey, limit: usize) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
        Box::pin(async move { self.redis.waiting(&key.literal()?, limit).await })
    }

    fn record_of<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Result<Option<BreakRecord>>> {
        Box::pin(async move { self.redis.record(&hold.claim.key.literal()?, HoldId::of(&hold.claim.owner)).await })
    }
}
