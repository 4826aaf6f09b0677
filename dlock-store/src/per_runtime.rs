//! One value, such as a connection, for each runtime that asks for it: opened there, and forgotten when that runtime
//! ends, since the value dies with it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dlock_contract::{Error, Origin, Result};
use futures::FutureExt;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::thread::background::{CallerRuntime, EndsTask};

/// One value for each runtime that asks for it.
///
/// ```
/// use dlock_store::PerRuntime;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> dlock_contract::Result<()> {
/// let connections = PerRuntime::new();
/// // A client is bound to the runtime in which it was opened. The second caller gets that of the first one.
/// let first = connections.get(|| async { Ok("a connection".to_owned()) }).await?;
/// let again = connections.get(|| async { Ok("another one".to_owned()) }).await?;
/// assert_eq!(first.value, again.value);
/// // A connection that has failed is thrown away, and the next caller opens a new one.
/// connections.discard(&first);
/// assert_eq!(connections.get(|| async { Ok("another one".to_owned()) }).await?.value, "another one");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PerRuntime<T> {
    entries: Arc<Mutex<Entries<T>>>,
}

#[derive(Debug)]
struct Entries<T> {
    of: HashMap<Origin, RuntimeEntry<T>>,
    is_closed: bool,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { of: HashMap::new(), is_closed: false }
    }
}

#[derive(Debug)]
struct RuntimeEntry<T> {
    generation: u64,
    cell: Arc<tokio::sync::OnceCell<T>>,
    /// The task that lives as long as the runtime, and whether it has gone.
    end_task: AbortHandle,
    gone: Arc<AtomicBool>,
}

/// A value of a [`PerRuntime`], with what is needed to discard just this one.
#[derive(Clone, Debug)]
pub struct Opened<T> {
    /// The value.
    pub value: T,
    origin: Origin,
    generation: u64,
}

impl<T: Clone + Send + Sync + 'static> PerRuntime<T> {
    /// No values yet.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Arc::default() }
    }

    /// The present runtime's value. If there is none, it is opened now.
    ///
    /// A task opens it, and ends with the returned future. So a caller that does not poll its future for a while, as in
    /// a `select!` whose other branch is at work, keeps no other caller waiting.
    ///
    /// # Errors
    /// The error of `open`, [`ErrorKind::Internal`](dlock_contract::ErrorKind::Internal) outside of a runtime, and
    /// [`ErrorKind::ShutDown`](dlock_contract::ErrorKind::ShutDown) after [`close`](Self::close).
    pub async fn get<F>(&self, open: impl FnOnce() -> F + Send + 'static) -> Result<Opened<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let runtime = CallerRuntime::here()?;
        let origin = runtime.origin();
        let (generation, cell) = self.entry(&runtime)?;
        let value = match cell.get() {
            Some(value) => value.clone(),
            None => {
                let (sender, receiver) = oneshot::channel();
                let opening = async move { sender.send(cell.get_or_try_init(open).await.cloned()) };
                let _opening = EndsTask(runtime.spawn(opening.map(drop)));
                receiver.await.unwrap_or_else(|_| Err(Error::outage("the runtime is shutting down")))?
            }
        };
        Ok(Opened { value, origin, generation })
    }

    /// The value of the runtime `origin`, if it is open and that runtime lives.
    #[must_use]
    pub fn peek(&self, origin: Origin) -> Option<Opened<T>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.of.get(&origin)?;
        Some(Opened { value: entry.cell.get()?.clone(), origin, generation: entry.generation })
    }

    /// The values of all runtimes that live.
    #[must_use]
    pub fn all(&self) -> Vec<T> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.of.values().filter_map(|entry| entry.cell.get().cloned()).collect()
    }

    /// Forgets a value that has turned out broken, unless another one has taken its place already.
    pub fn discard(&self, opened: &Opened<T>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.of.get_mut(&opened.origin).filter(|entry| entry.generation == opened.generation);
        let broken = entry.map(|entry| {
            entry.generation = fresh_generation();
            std::mem::take(&mut entry.cell)
        });
        drop(entries);
        // Outside of the lock: the value's own drop may do anything.
        drop(broken);
    }

    fn entry(&self, runtime: &CallerRuntime) -> Result<(u64, Arc<tokio::sync::OnceCell<T>>)> {
        let origin = runtime.origin();
        let lock = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = lock().of.get(&origin) {
            return Ok((entry.generation, entry.cell.clone()));
        }
        let gone = Arc::new(AtomicBool::new(false));
        let at_end = RuntimeEnd { entries: Arc::downgrade(&self.entries), origin, gone: gone.clone() };
        // Outside of the lock: a runtime that is being shut down drops the task at once, and `at_end` with it.
        let end_task = runtime.spawn(async move {
            let _at_end = at_end;
            std::future::pending::<()>().await;
        });
        let mut entries = lock();
        if entries.is_closed {
            drop(entries);
            end_task.abort();
            return Err(Error::closed());
        }
        if let Some(entry) = entries.of.get(&origin) {
            let found = (entry.generation, entry.cell.clone());
            drop(entries);
            end_task.abort();
            return Ok(found);
        }
        let (generation, cell) = (fresh_generation(), Arc::default());
        if !gone.load(Ordering::Acquire) {
            entries.of.insert(origin, RuntimeEntry { generation, cell: Arc::clone(&cell), end_task, gone });
        }
        Ok((generation, cell))
    }
}

impl<T> PerRuntime<T> {
    /// Forgets all values. The next caller opens a new one.
    pub fn clear(&self) {
        let entries = std::mem::take(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner).of);
        entries.into_values().for_each(|entry| entry.end_task.abort());
    }

    /// Forgets all values, and opens none any more. Otherwise a request that comes late, such as a release that is sent again,
    /// would open a connection that nobody closes.
    pub fn close(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.clear();
    }
}

impl<T> Drop for PerRuntime<T> {
    fn drop(&mut self) {
        // Otherwise the tasks would stay in their runtimes for nothing.
        self.clear();
    }
}

/// A number that is never used twice. Otherwise a value from before a `clear` could discard a value from after it.
fn fresh_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<T: Clone + Send + Sync + 'static> Default for PerRuntime<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Lives in a task of the runtime. When the runtime ends, it drops its tasks, and this takes its value out of the
/// table. So the value is gone before another runtime can get the same id.
struct RuntimeEnd<T> {
    entries: Weak<Mutex<Entries<T>>>,
    origin: Origin,
    gone: Arc<AtomicBool>,
}

impl<T> Drop for RuntimeEnd<T> {
    fn drop(&mut self) {
        // First, so that an entry that is not in the table yet is not inserted any more.
        self.gone.store(true, Ordering::Release);
        if let Some(entries) = self.entries.upgrade() {
            let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
            // After a `clear` the entry may be another one's.
            let ours = entries.of.get(&self.origin).is_some_and(|entry| Arc::ptr_eq(&entry.gone, &self.gone));
            let entry = if ours { entries.of.remove(&self.origin) } else { None };
            drop(entries);
            // Outside of the lock: the value's own drop may do anything.
            drop(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_has_its_own_value_until_it_ends() {
        let values = PerRuntime::<u32>::new();
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let open = |runtime: &tokio::runtime::Runtime, value| {
            runtime.block_on(values.get(move || async move { Ok(value) })).unwrap().value
        };
        assert_eq!((open(&first, 1), open(&second, 2), open(&first, 3)), (1, 2, 1));
        let origin = Origin::of(first.handle());
        assert!(values.peek(origin).is_some());
        drop(first);
        assert!(values.peek(origin).is_none());
    }

    #[test]
    fn a_broken_value_is_opened_anew_once() {
        let values = PerRuntime::<u32>::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let broken = runtime.block_on(values.get(|| async { Ok(1) })).unwrap();
        values.discard(&broken);
        assert_eq!(runtime.block_on(values.get(|| async { Ok(2) })).unwrap().value, 2);
        values.discard(&broken);
        assert_eq!(runtime.block_on(values.get(|| async { Ok(3) })).unwrap().value, 2);
    }

    #[test]
    fn after_the_close_nothing_is_opened_and_an_opening_that_is_under_way_is_not_kept() {
        let values = PerRuntime::<Arc<u32>>::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let opens = |value: &Arc<u32>| {
                let value = value.clone();
                move || async move {
                    tokio::task::yield_now().await;
                    Ok(value)
                }
            };
            let (one, other) = (Arc::new(1), Arc::new(2));
            let mut under_way = Box::pin(values.get(opens(&one)));
            assert!(under_way.as_mut().now_or_never().is_none());
            values.close();
            drop(under_way.await.unwrap());
            tokio::task::yield_now().await;
            assert_eq!(Arc::strong_count(&one), 1);
            let error = values.get(opens(&other)).await.unwrap_err();
            assert!(*error.kind() == dlock_contract::ErrorKind::ShutDown && !error.may_have_left(), "{error}");
            assert_eq!(Arc::strong_count(&other), 1);
        });
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }

    #[test]
    fn an_opening_that_is_not_polled_keeps_nobody_waiting_and_one_that_is_dropped_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (values, go) = (PerRuntime::<u32>::new(), Arc::new(tokio::sync::Notify::new()));
        runtime.block_on(async {
            let opens = |value| {
                let go = go.clone();
                move || async move {
                    go.notified().await;
                    Ok(value)
                }
            };
            let mut first = Box::pin(values.get(opens(1)));
            assert!(first.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
            drop(first);
            let mut second = Box::pin(values.get(opens(2)));
            assert!(second.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
            go.notify_one();
            let third = values.get(|| async { Ok(3) });
            assert_eq!(third.await.unwrap().value, 2);
            assert_eq!(second.await.unwrap().value, 2);
        });
    }

    #[test]
    fn a_table_that_is_dropped_leaves_no_task() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let values = PerRuntime::<u32>::new();
        runtime.block_on(values.get(|| async { Err(dlock_contract::Error::outage("down")) })).unwrap_err();
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        drop(values);
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }
}
