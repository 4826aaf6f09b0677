//! The memory store, as the suite reaches it.

use std::sync::Arc;

use dlock_conformance::Store;
use dlock_contract::{Backend, LockKey, Result};
use dlock_memory::Memory;
use dlock_store::Clock;
use futures::future::BoxFuture;

pub(crate) fn memory() -> Box<dyn Store> {
    Box::new(InMemory(Memory::new()))
}

/// All clients are clones: another process would have another store.
struct InMemory(Memory);

impl Store for InMemory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn open(&self, _: Clock) -> BoxFuture<'_, Result<Arc<dyn Backend>>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Backend>) })
    }

    /// All clients are one store.
    fn open_with_other_settings(&self, _: Clock) -> Option<BoxFuture<'_, Result<Arc<dyn Backend>>>> {
        None
    }

    /// It tells no names, but each case has a store of its own and looks at one key at a time.
    fn leftovers<'a>(&'a self, _: &'a LockKey) -> BoxFuture<'a, Result<Vec<String>>> {
        Box::pin(async { Ok(vec!["a key in memory".to_owned(); self.0.len()]) })
    }

    fn evict<'a>(&'a self, key: &'a LockKey) -> Option<BoxFuture<'a, Result<()>>> {
        Some(Box::pin(async {
            self.0.forget(key);
            Ok(())
        }))
    }

    fn in_process(&self) -> bool {
        true
    }
}
