//! Very many keys in one call: bounded, and nothing that grows with their square.

use crate::hold::tenure::steps;
use crate::{ErrorKind, Key, LockAll, Registry};
use dlock_memory::Memory;

const MOST: u64 = 10_000;

fn registry() -> Registry {
    let registry = Registry::new();
    // If one of these failed, nothing could be locked.
    let _ = registry.install("m", Memory::new());
    let _ = registry.set_default("m");
    registry
}

fn keys(registry: &Registry, from: u64, count: u64) -> LockAll {
    registry.lock_all((from..from + count).map(|n| Key::text("k:").value(&n)))
}

#[tokio::test]
async fn more_than_ten_thousand_keys_are_refused() {
    let registry = registry();
    let refused = [
        keys(&registry, 0, MOST + 1).acquire().await.unwrap_err(),
        keys(&registry, 0, MOST + 1).acquire_blocking().unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "keys"), "{error}");
        assert!(error.to_string().contains("10000"), "{error}");
    }
}

#[tokio::test]
async fn work_with_many_keys_grows_no_faster_than_their_number() {
    let registry = registry();
    for one_by_one in [false, true] {
        // The store's wait queue has a place for each of these callers.
        let all = |from| keys(&registry, from, MOST).fair(one_by_one);
        steps::taken();
        let outer = all(0).acquire().await.unwrap();
        let nested = crate::guard::scope::within(outer.holds(), || crate::guard::scope::inherit(all(MOST).acquire()));
        let nested = nested.await.unwrap();
        nested.check().unwrap();
        outer.check().unwrap();
        nested.release().await.unwrap();
        outer.release().await.unwrap();
        let steps = steps::taken();
        assert!(steps <= usize::try_from(MOST).unwrap() * 20, "{steps}");
    }
}
