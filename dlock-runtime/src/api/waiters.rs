//! The names of a lock's waiters.

use dlock_contract::{Backend, LockKey, Note, Result};
use futures::future::BoxFuture;

use super::lock::Lock;

impl Lock {
    /// The first `limit` waiters in the store's wait queue, in its order: each note has the function, the host and the process.
    /// `None` if the store keeps no notes of them: memory, Redis, etcd and ZooKeeper do. Callers of one process wait in that
    /// process, and are one waiter in the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # let registry = dlock_runtime::Registry::new();
    /// # registry.install("memory", dlock_memory::Memory::new())?;
    /// let guard = registry.lock("report").acquire().await?;
    /// assert_eq!(registry.lock("report").waiters(20).await?, Some(Vec::new()));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`holders`](Self::holders).
    pub async fn waiters(self, limit: usize) -> Result<Option<Vec<Note>>> {
        self.look(move |backend, key| waiters_of(backend, key, limit)).await
    }
}

pub(super) fn waiters_of<'a>(
    backend: &'a dyn Backend,
    key: &'a LockKey,
    limit: usize,
) -> BoxFuture<'a, Result<Option<Vec<Note>>>> {
    Box::pin(async move {
        match backend.inspect() {
            Some(inspect) => inspect.waiters(key, limit).await,
            None => Ok(None),
        }
    })
}
