//! The warning of guards that are dropped at once, which only debug builds have.

use dlock_memory::Memory;
use dlock_runtime::Registry;

use crate::support::{MS, test, until};
use crate::user_code::layer::{Does, Layer};

fn registry(store: &'static str) -> Registry {
    let registry = Registry::new();
    registry.install(store, Memory::new()).unwrap();
    Layer::meets(store, Does::Nothing);
    registry
}

fn warned(store: &str) -> usize {
    Layer::lines(store).iter().filter(|(line, ..)| line.contains("write `let _guard = …`")).count()
}

#[test]
fn a_guard_that_is_dropped_at_once_is_told_once_for_its_place() {
    test(async {
        let store = "a guard that is dropped at once";
        let registry = registry(store);
        let drop_at_once = async |several| {
            // As often as the machine needs to do it at once.
            for _ in 0..1000 {
                if several {
                    let _ = registry.lock_all(["a", "b"]).wait(crate::support::LONG).acquire().await.unwrap();
                } else {
                    let _ = registry.lock("k").wait(crate::support::LONG).acquire().await.unwrap();
                }
            }
        };
        drop_at_once(false).await;
        until("the warning", || warned(store) == 1).await;
        drop_at_once(true).await;
        until("the warning of the other place", || warned(store) == 2).await;
        for _ in 0..1000 {
            let _ = registry.elect("e").campaign().await.unwrap();
        }
        until("the warning of the leadership", || warned(store) == 3).await;
    });
}

#[test]
fn a_guard_that_is_used_or_kept_is_not_told() {
    test(async {
        let store = "a guard that is used or kept";
        let registry = registry(store);
        for _ in 0..1000 {
            let guard = registry.lock("k").acquire().await.unwrap();
            guard.check().unwrap();
            drop(guard);
            registry.lock("released").acquire().await.unwrap().release().await.unwrap();
        }
        for _ in 0..10 {
            let _guard = registry.lock("short").acquire().await.unwrap();
            std::thread::sleep(MS);
        }
        let _ = registry.lock("k").run(|_| async {}).await;
        assert_eq!(warned(store), 0);
    });
}
