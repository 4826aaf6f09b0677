//! A lock by the key that somebody types: `stock:42` is `stock:<42>` in most programs.

use dlock_contract::engine::KeyBuf;
use dlock_contract::{Error, ErrorKind, Key, Result};

use crate::api::inspect::{ListedLock, Locks, state_of};
use crate::events::store_event::Operation;
use crate::hold::store::request_bound;

/// A search looks at this many pages of [`PAGE_ENTRIES`].
const PAGE_LIMIT: usize = 10;

const PAGE_ENTRIES: u32 = 1000;

impl Locks {
    /// The lock of a key as somebody types it, if it is held. Otherwise the held locks whose keys look like it when the marks
    /// of values are left out: `stock:42` finds `stock:<42>`.
    ///
    /// It looks at 10 000 entries at most: those that begin with the text up to its first `:` or `/`. Where the store cannot
    /// list, it looks for the lock of this key alone.
    ///
    /// ```
    /// # use dlock_runtime::Key;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # let registry = dlock_runtime::Registry::new();
    /// # registry.install("memory", dlock_memory::Memory::new())?;
    /// let guard = registry.lock(Key::text("stock:").value(&42)).acquire().await?;
    /// let found = registry.locks().like("stock:42").await?;
    /// assert_eq!(found[0].key.as_str(), "dl1:default:stock:<42>");
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Lock::holders`](crate::Lock::holders) and of [`page`](Self::page).
    pub async fn like(self, text: &str) -> Result<Vec<ListedLock>> {
        let context = self.registry.context();
        let bound = request_bound(context.defaults().ttl);
        let store = context.opened(self.backend.as_deref(), bound).await?;
        let named = |error: Error| error.with_backend(&store.name);
        let (key, _) = store.identify(&self.listing.namespace, &KeyBuf::from(Key::rendered(text))).map_err(named)?;
        let state = store
            .ask(Operation::Inspect, bound, &key, state_of)
            .await
            .map_err(|error| named(error.with_key(key.as_str())))?;
        if !state.holders.is_empty() {
            return Ok(vec![ListedLock { key, state }]);
        }
        let without_marks = |key: &str| key.replace(['<', '>'], "");
        let wanted = without_marks(key.as_str());
        // A value may begin at any place, but most keys begin with a word of the program.
        let prefix = text.split_inclusive([':', '/']).next().filter(|prefix| *prefix != text).unwrap_or_default();
        let mut pages = self.prefix(prefix).limit(PAGE_ENTRIES);
        let mut found = Vec::new();
        for _ in 0..PAGE_LIMIT {
            let page = match pages.clone().page().await {
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported { .. }) => break,
                page => page?,
            };
            found.extend(page.locks.into_iter().filter(|lock| without_marks(lock.key.as_str()) == wanted));
            let Some(next) = page.next else { break };
            pages = pages.after(next);
        }
        Ok(found)
    }
}
