//! The locks for which callers of this process wait.

use dlock_contract::LockKey;

use crate::acquire::context::Found;
use crate::api::registry::Registry;

/// One lock for which callers of this process wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitedLock {
    /// The lock's full name.
    pub key: LockKey,
    /// The name under which its backend is installed.
    pub backend: String,
    /// The number of callers of this process that wait.
    pub waiters: usize,
}

impl Registry {
    /// The locks for which callers of this process wait now, on all backends of this registry; the most waiters first. No
    /// store is asked. Callers of other processes are not counted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # let registry = dlock_runtime::Registry::new();
    /// # registry.install("memory", dlock_memory::Memory::new())?;
    /// let guard = registry.lock("report").acquire().await?;
    /// let waiting = tokio::spawn(registry.lock("report").acquire());
    /// # while registry.waited_for().is_empty() { tokio::task::yield_now().await }
    /// assert_eq!(registry.waited_for()[0].waiters, 1);
    /// # guard.release().await?;
    /// # waiting.await.expect("it does not panic")?.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn waited_for(&self) -> Vec<WaitedLock> {
        let opened = self.context().stores().into_iter().filter_map(|found| match found {
            Found::Open(store) => Some(store),
            Found::Lazy(_) => None,
        });
        let waited = opened.flat_map(|store| {
            let backend = store.name.to_string();
            let of_store = store.queue.waited_for().into_iter();
            of_store.map(move |(key, waiters)| WaitedLock { key, backend: backend.clone(), waiters })
        });
        let mut waited: Vec<_> = waited.collect();
        waited.sort_by(|one, other| (other.waiters, &one.key).cmp(&(one.waiters, &other.key)));
        waited
    }
}
