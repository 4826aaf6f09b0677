//! Inspection: what is held here, and what is held in a store.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{
    Backend, Cursor, Error, ErrorKind, HoldId, LastSuccess, Listing, LockKey, LockState, Note, Result,
};
use futures::future::{BoxFuture, join_all};

use crate::api::lock::Lock;
use crate::api::registry::Registry;
use crate::events::store_event::Operation;
use crate::hold::store::request_bound;
use crate::hold::tenure::Tenure;
use crate::options::supported::refused;

/// One lock that this process holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock's full name.
    pub key: LockKey,
    /// The name under which its backend is installed.
    pub backend: String,
    /// The note that other processes read.
    pub note: Note,
    /// Names the hold in listings, and for breaking it.
    pub id: HoldId,
    /// The fencing token, if the store gives one.
    pub token: Option<u64>,
    /// For how long it has been held.
    pub held: Duration,
}

/// One lock of a listing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedLock {
    /// The lock's full name.
    pub key: LockKey,
    /// Its holders when the store was asked.
    pub state: LockState,
}

/// One page of a listing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocksPage {
    /// The locks that are held; there may be none although more pages follow.
    pub locks: Vec<ListedLock>,
    /// Give it to [`Locks::after`] for the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

/// The locks that are held in a store, page by page. Made by [`locks`](crate::locks) and [`Registry::locks`].
///
/// The cost of a page is bounded: the store is asked for at most this many entries, and then for the holders of each
/// lock among them. A lock that is taken or freed between two pages may be missing or be listed twice.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dlock_runtime::Error> {
/// # let registry = dlock_runtime::Registry::new();
/// # registry.install("memory", dlock_memory::Memory::new())?;
/// let guard = registry.lock("report:daily").acquire().await?;
/// let page = registry.locks().prefix("report:").page().await?;
/// let [lock] = &page.locks[..] else { panic!("one lock is held") };
/// assert_eq!(lock.key.as_str(), "dl1:default:report:daily");
/// assert_eq!(lock.state.holders[0].note.pid(), Some(std::process::id()));
/// # guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is listed before `page`"]
pub struct Locks {
    pub(super) registry: Registry,
    pub(super) backend: Option<String>,
    pub(super) listing: Listing,
}

impl Locks {
    /// The name of the backend. Default: the registry's.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// The namespace. Default: the registry's.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.listing.namespace = namespace.into();
        self
    }

    /// Lists only keys with this prefix, in the form in which they are shown: `stock:` or `stock:<4`. Default: all
    /// keys.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.listing.prefix = prefix.into();
        self
    }

    /// How many entries of the store one page looks at, 1 to 1000. Default: 100.
    pub fn limit(mut self, limit: u32) -> Self {
        self.listing.limit = limit;
        self
    }

    /// Begins where the page before has ended.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.listing.after = Some(cursor);
        self
    }

    /// Asks the store for one page.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the store cannot list; [`ErrorKind::ConfigInvalid`] for a limit, a namespace or
    /// a cursor that cannot be; [`ErrorKind::Outage`].
    pub async fn page(self) -> Result<LocksPage> {
        if !(1..=1000).contains(&self.listing.limit) {
            return Err(Error::config("limit", "`limit` must be 1 to 1000 entries"));
        }
        let context = self.registry.context();
        let bound = request_bound(context.defaults().ttl);
        let store = context.opened(self.backend.as_deref(), bound).await?;
        let named = |error: Error| error.with_backend(&store.name);
        let listed = store.ask(Operation::Inspect, bound, &self.listing, |backend, listing| match backend.inspect() {
            Some(inspect) => inspect.list(listing),
            None => unsupported(),
        });
        let page = listed.await.map_err(named)?;
        let states = page.locks.into_iter().map(|key| {
            let (store, registry) = (&store, &self.registry);
            async move {
                match store.ask(Operation::Inspect, bound, &key, state_of).await {
                    Ok(state) => Ok(Some(ListedLock { key, state: registry.with_own_ids(state) })),
                    // Under literal names: a value of a program that is no lock.
                    Err(error) if *error.kind() == ErrorKind::KeyConflict => Ok(None),
                    Err(error) => Err(error),
                }
            }
        });
        let states: Result<Vec<_>> = join_all(states).await.into_iter().collect();
        let locks = states.map_err(named)?.into_iter().flatten();
        // A lock that was freed between the two questions is not held.
        let locks = locks.filter(|lock| !lock.state.holders.is_empty()).collect();
        Ok(LocksPage { locks, next: page.next })
    }
}

/// The state of a lock, with its names in the store.
pub(super) fn state_of<'a>(backend: &'a dyn Backend, key: &'a LockKey) -> BoxFuture<'a, Result<LockState>> {
    Box::pin(async move {
        let mut state = backend.look(key).await?;
        state.names = backend.identify(key)?.names();
        Ok(state)
    })
}

pub(super) fn unsupported<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T>> {
    let need = "a store that can list locks and break holds".to_owned();
    Box::pin(std::future::ready(Err(Error::new(
        ErrorKind::Unsupported { need },
        "this store cannot list locks or break holds",
    ))))
}

impl Lock {
    /// The holders of the lock, as every process sees them, and the number of waiters.
    ///
    /// It asks for this key alone: `lock("stock:42")` is not the lock of the template `stock:<id>`, whose key is `stock:<42>`. For
    /// a key that somebody has typed use [`Locks::like`], which finds both, or [`Key::rendered`](crate::Key::rendered) with the
    /// marks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # let registry = dlock_runtime::Registry::new();
    /// # registry.install("memory", dlock_memory::Memory::new())?;
    /// let guard = registry.lock("report").acquire().await?;
    /// let state = registry.lock("report").holders().await?;
    /// assert_eq!(state.holders[0].note.pid(), Some(std::process::id()));
    /// assert_eq!(state.waiters, Some(0));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Like [`acquire`](Self::acquire), without waiting.
    pub async fn holders(self) -> Result<LockState> {
        let registry = self.registry().clone();
        Ok(registry.with_own_ids(self.look(state_of).await?))
    }

    /// Whether anybody holds the lock, in this process or in another.
    ///
    /// # Errors
    /// As [`holders`](Self::holders).
    pub async fn is_locked(self) -> Result<bool> {
        Ok(!self.holders().await?.holders.is_empty())
    }

    /// The last run that succeeded, of those with [`once_per`](Self::once_per) and of scheduled tasks; `None` if there
    /// was none.
    ///
    /// # Errors
    /// As [`holders`](Self::holders); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store keeps
    /// no such record.
    pub async fn last_success(self) -> Result<Option<LastSuccess>> {
        self.look(|backend, key| match backend.periods() {
            Some(periods) => periods.last_success(key),
            None => refused("once_per"),
        })
        .await
    }
}

impl Registry {
    /// The locks that are held in a store, page by page.
    pub fn locks(&self) -> Locks {
        let namespace = self.defaults().namespace.clone();
        Locks { registry: self.clone(), backend: None, listing: Listing::of(namespace) }
    }

    /// The locks that this process holds now, on all backends of this registry; the longest hold first. No store is
    /// asked.
    #[must_use]
    pub fn held(&self) -> Vec<HeldLock> {
        self.longest_held(usize::MAX).0
    }

    /// As [`held`](Self::held), for a page that shows some of 100,000 locks: at most `limit` of them, and how many there are.
    #[must_use]
    pub fn longest_held(&self, limit: usize) -> (Vec<HeldLock>, usize) {
        let shared = self.context().shared();
        let now = shared.clock.now();
        let held_lock = |tenure: Arc<Tenure>| {
            let claim = &tenure.hold.claim;
            HeldLock {
                key: claim.key.clone(),
                backend: tenure.store.name.to_string(),
                note: claim.note.clone(),
                id: tenure.id(),
                token: tenure.hold.token.map(std::num::NonZeroU64::get),
                held: now.since(tenure.since),
            }
        };
        let mut held = shared.renewals.holds();
        let count = held.len();
        if count > limit {
            held.select_nth_unstable_by_key(limit, |tenure| tenure.since);
            held.truncate(limit);
        }
        held.sort_by_key(|tenure| tenure.since);
        (held.into_iter().map(held_lock).collect(), count)
    }

    /// Replaces the store's ids of holds that are passed on here by those of their present callers.
    fn with_own_ids(&self, mut state: LockState) -> LockState {
        let shared = self.context().shared();
        for id in state.holders.iter_mut().filter_map(|holder| holder.id.as_mut()).filter(|id| shared.cohorts.has(**id))
        {
            let holds = shared.renewals.holds();
            let present = holds.iter().find(|tenure| HoldId::of(&tenure.hold.claim.owner) == *id);
            *id = present.map_or(*id, |tenure| tenure.id());
        }
        state
    }
}
