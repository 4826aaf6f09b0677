//! Several keys: sorted, all or none, within one wait, given back in reverse.

use dlock_runtime::{ErrorKind, Key, Lock, LockAll, Wait};

use crate::support::{LONG, Op, SECOND, World, calm, is_free, test};

fn all(world: &World, keys: &[&'static str]) -> LockAll {
    world.registry.lock_all(keys.iter().copied().map(Key::text).collect::<Vec<_>>())
}

#[test]
fn they_are_sorted_and_each_is_taken_once() {
    test(async {
        let world = World::new();
        let guards = all(&world, &["c", "a", "b", "a"]).acquire().await.unwrap();
        let keys: Vec<_> = guards.held().map(|held| held.key().to_string()).collect();
        assert_eq!(keys, ["dl1:default:a", "dl1:default:b", "dl1:default:c"]);
        let tokens: Vec<_> = guards.held().map(|held| held.fence().unwrap().get()).collect();
        assert!(tokens.is_sorted());
        guards.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn all_or_none() {
    test(async {
        let world = World::new();
        let other = world.lock("b").acquire().await.unwrap();
        let error = all(&world, &["a", "b", "c"]).wait(Wait::None).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::Busy, Some("dl1:default:b")));
        assert_eq!(world.memory.len(), 1, "what was won before is given back when the caller hears of it");
        drop(other);
    });
}

#[test]
fn one_wait_is_for_all() {
    test(async {
        let world = World::new();
        let (first, second) = (world.lock("a").acquire().await.unwrap(), world.lock("b").acquire().await.unwrap());
        let waiting = tokio::spawn(all(&world, &["a", "b"]).wait(Wait::UpTo(10 * SECOND)).acquire());
        calm().await;
        world.pass(6 * SECOND).await;
        first.release().await.unwrap();
        calm().await;
        world.pass(6 * SECOND).await;
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
        assert!(is_free(&world, "a").await);
        drop(second);
    });
}

#[test]
fn a_dropped_acquisition_leaves_nothing() {
    test(async {
        let world = World::new();
        let other = world.lock("b").acquire().await.unwrap();
        let waiting = tokio::spawn(all(&world, &["a", "b"]).wait(LONG).acquire());
        calm().await;
        assert_eq!(world.memory.len(), 2);
        waiting.abort();
        let _ = waiting.await;
        other.release().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn dropping_gives_them_back_in_reverse() {
    test(async {
        let world = World::new();
        drop(all(&world, &["a", "b", "c"]).acquire().await.unwrap());
        world.empty().await;
        assert_eq!(world.store.calls(Op::Release), 3);
    });
}

#[test]
fn no_key_locks_nothing_and_is_told() {
    test(async {
        let world = World::new();
        let error = all(&world, &[]).acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "keys"), "{error}");
    });
}

#[test]
fn a_key_that_the_enclosing_call_holds_is_told() {
    test(async {
        let world = World::new();
        let nested = all(&world, &["a", "b"]).wait(LONG);
        let told = world.lock("b").run(|_| async { nested.acquire().await.unwrap_err() }).await.unwrap();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        assert!(is_free(&world, "a").await);
    });
}

#[test]
fn a_loss_of_one_is_a_loss() {
    test(async {
        let world = World::new();
        let guards = all(&world, &["a", "b"]).acquire().await.unwrap();
        world.memory.forget(&crate::support::full("a"));
        world.pass(15 * SECOND).await;
        assert!(guards.check().unwrap_err().is_lost());
        assert!(guards.release().await.unwrap_err().is_lost());
        assert!(is_free(&world, "b").await);
    });
}

#[test]
fn two_callers_with_opposite_lists_do_not_wait_for_each_other() {
    test(async {
        let world = World::on(&dlock_runtime::Clock::system());
        let caller = |keys: [&'static str; 2]| {
            let lock: LockAll = Lock::clone(&all(&world, &keys)).wait(LONG);
            async move {
                for _ in 0..200 {
                    lock.clone().acquire().await.unwrap().release().await.unwrap();
                }
            }
        };
        tokio::join!(caller(["a", "b"]), caller(["b", "a"]));
    });
}
