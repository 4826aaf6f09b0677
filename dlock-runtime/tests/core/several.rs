//! Several keys: sorted, all or none, within one wait, released in reverse.

use dlock_runtime::{Clock, ErrorKind, Key, Lock, LockAll, LossCause, Renew, Wait};
use futures::FutureExt;

use crate::acquire::neighbours;
use crate::support::{LONG, Op, SECOND, Step, World, calm, freed, full, is_free, poll_once, test};

fn all(world: &World, keys: &[&'static str]) -> LockAll {
    world.registry.lock_all(keys.iter().copied().map(Key::text).collect::<Vec<_>>())
}

#[test]
fn several_keys_are_taken_in_their_order_and_once_and_are_told_as_they_were_written() {
    test(async {
        for batch in [true, false] {
            let world = World::with(&Clock::manual(), |offers| offers.batch = batch);
            let guards = all(&world, &["c", "a", "b", "a"]).acquire().await.unwrap();
            let told: Vec<_> = guards.held().map(|held| (held.key().clone(), held.fence().unwrap().get())).collect();
            assert_eq!(told.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), ["c", "a", "b", "a"].map(full));
            assert_eq!(told[1], told[3], "one lock has one hold");
            assert!(told[1].1 <= told[2].1 && told[2].1 <= told[0].1, "{told:?}");
            assert_eq!(world.memory.len(), 3);
            assert_eq!(guards.to_held().len(), 4);
            guards.release().await.unwrap();
            assert!(world.memory.is_empty());
        }
    });
}

#[test]
fn a_call_gets_all_of_its_keys_or_none() {
    test(async {
        let world = World::new();
        let other = world.lock("b").acquire().await.unwrap();
        let error = all(&world, &["a", "b", "c"]).wait(Wait::None).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::Busy, Some(full("b").as_str())));
        assert_eq!(world.memory.len(), 1, "what was won before is given back when the caller hears of it");
        drop(other);
    });
}

#[test]
fn one_wait_bounds_all_keys_of_a_call() {
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
        freed(&world, "a").await;
        drop(second);
    });
}

#[test]
fn a_dropped_acquisition_of_several_keys_leaves_nothing() {
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
fn dropped_guards_of_several_keys_are_released_in_reverse() {
    test(async {
        let world = World::new();
        drop(all(&world, &["a", "b", "c"]).acquire().await.unwrap());
        world.empty().await;
        assert_eq!(world.store.calls(Op::Release), 3);
    });
}

#[test]
fn an_empty_list_of_keys_locks_nothing_and_is_an_error() {
    test(async {
        let world = World::new();
        let error = all(&world, &[]).acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == "keys"), "{error}");
    });
}

#[test]
fn a_key_of_several_that_the_enclosing_call_holds_is_an_error() {
    test(async {
        let world = World::new();
        let nested = all(&world, &["a", "b"]).wait(LONG);
        let told = world.lock("b").run(|_| async { nested.acquire().await.unwrap_err() }).await.unwrap();
        assert_eq!(told.kind(), &ErrorKind::WouldDeadlock);
        freed(&world, "a").await;
    });
}

#[test]
fn the_loss_of_one_of_several_locks_is_a_loss_of_the_call() {
    test(async {
        for (gone, left) in [("a", "b"), ("b", "a")] {
            let world = World::new();
            let guards = all(&world, &["a", "b"]).acquire().await.unwrap();
            world.memory.forget(&full(gone));
            world.pass(15 * SECOND).await;
            assert!(guards.check().unwrap_err().is_lost(), "of {gone}");
            assert!(guards.release().await.unwrap_err().is_lost(), "of {gone}");
            freed(&world, left).await;
        }
    });
}

/// This includes a loss that only the store knows of. The other locks were held to the end, but that is not all of
/// them.
#[test]
fn a_release_of_several_locks_reports_each_one_that_the_store_gave_away() {
    test(async {
        for together in [true, false] {
            for gone in ["a", "b", "c"] {
                let world = World::with(&Clock::manual(), |offers| offers.batch = together);
                let guards = all(&world, &["a", "b", "c"]).acquire().await.unwrap();
                world.memory.forget(&full(gone));
                let error = guards.release().await.unwrap_err();
                assert_eq!(error.key(), Some(full(gone).as_str()), "{error}");
                assert!(error.is_lost(), "{error}");
                world.empty().await;
            }
        }
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

/// A call that waits for the next key need not wait any more, even if that key becomes free.
#[test]
fn the_loss_of_one_key_ends_the_wait_for_the_next_key() {
    test(async {
        let changes: [fn(LockAll) -> LockAll; 2] = [|all| all.renew(Renew::Off), |all| all.max_hold(40 * SECOND)];
        for change in changes {
            let world = World::new();
            let other = world.lock("b").acquire().await.unwrap();
            let waiting = tokio::spawn(change(all(&world, &["a", "b", "c"])).wait(LONG).acquire());
            calm().await;
            assert!(!is_free(&world, "a").await);
            world.pass(41 * SECOND).await;
            let told = waiting.now_or_never().expect("told of the loss, not when b comes free").unwrap();
            let error = told.unwrap_err();
            assert!(error.is_lost(), "{error}");
            assert_eq!(error.key(), Some(full("a").as_str()));
            freed(&world, "a").await;
            other.release().await.unwrap();
            // Nobody waits for it.
            freed(&world, "b").await;
            world.empty().await;
        }
    });
}

/// Nobody listens to the loss any more.
#[test]
fn the_loss_of_one_key_counts_even_if_it_comes_between_the_last_grant_and_its_answer() {
    test(async {
        let world = World::with(&Clock::manual(), |offers| offers.batch = false);
        let (store, clock) = (world.store.clone(), world.clock.clone());
        // A second and a half of the first grant is left, and the second grant lasts.
        store.next(Op::Acquire, [Step::Stale(28 * SECOND)]);
        world.store.meanwhile(move || store.meanwhile(move || clock.advance(2 * SECOND)));
        let error = all(&world, &["a", "b"]).renew(Renew::Off).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::Lost(LossCause::Deadline), Some(full("a").as_str())));
        assert_eq!(world.store.calls(Op::Acquire), 2);
        world.empty().await;
    });
}

/// Nobody has used the lock, and the caller got an error.
#[test]
fn keys_of_a_failed_call_are_released_without_min_hold() {
    test(async {
        let (world, stranger) = neighbours();
        let other = stranger.lock("b").acquire().await.unwrap();
        let busy = all(&world, &["a", "b"]).min_hold(5 * SECOND).wait(Wait::None).acquire().await;
        assert_eq!(busy.unwrap_err().kind(), &ErrorKind::Busy);
        freed(&stranger, "a").await;
        other.release().await.unwrap();
    });
}

#[test]
fn keys_of_a_dropped_call_are_released_without_min_hold() {
    test(async {
        let (world, stranger) = neighbours();
        let other = stranger.lock("b").acquire().await.unwrap();
        let waiting = tokio::spawn(all(&world, &["a", "b"]).min_hold(5 * SECOND).wait(LONG).acquire());
        calm().await;
        assert!(!is_free(&stranger, "a").await);
        waiting.abort();
        let _ = waiting.await;
        calm().await;
        freed(&stranger, "a").await;
        other.release().await.unwrap();
    });
}

#[test]
fn an_early_release_of_several_keys_keeps_each_of_them() {
    test(async {
        for together in [true, false] {
            let world = World::with(&Clock::manual(), |offers| offers.batch = together);
            all(&world, &["a", "b"]).min_hold(5 * SECOND).acquire().await.unwrap().release().await.unwrap();
            assert_eq!(world.memory.len(), 2);
            world.pass(5 * SECOND).await;
            freed(&world, "a").await;
            freed(&world, "b").await;
        }
    });
}

#[test]
fn the_drop_of_very_many_holds_needs_little_stack() {
    test(async {
        let world = World::new();
        let keys = (0..10_000).map(|n: u32| Key::text("k:").value(&n));
        let guards = world.registry.lock_all(keys).acquire().await.unwrap();
        let small = std::thread::Builder::new().stack_size(64 * 1024);
        small.spawn(move || drop(guards)).unwrap().join().unwrap();
        world.empty().await;
    });
}

/// Its release does not tell a second end, also if nobody waits for it.
#[test]
fn the_release_of_a_lost_lock_that_is_given_up_tells_no_end() {
    test(async {
        let world = World::new();
        let guards = world.registry.lock_all(["j", "k"]).acquire().await.unwrap();
        world.memory.forget(&full("k"));
        guards.held().nth(1).unwrap().confirm().await.unwrap_err();
        world.events.expect("Lost", 1).await;
        world.store.next(Op::Release, [Step::Hang, Step::Hang]);
        let mut release = Box::pin(guards.release());
        assert!(poll_once(&mut release).is_pending());
        drop(release);
        world.empty().await;
        world.events.expect("Released", 1).await;
        calm().await;
        assert_eq!((world.events.count("Released"), world.events.count("Lost")), (1, 1));
    });
}
