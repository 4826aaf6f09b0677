//! Acquiring a lock, and the errors if it cannot be had.

use std::time::Duration;

use dlock_contract::WakeStyle;
use dlock_runtime::{Clock, ErrorKind, Renew, Wait};

use crate::support::{Events, LONG, MS, Op, SECOND, Step, World, calm, freed, full, is_free, test};

#[test]
fn a_lock_is_held_until_its_release() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        assert_eq!(guard.key(), &full("k"));
        assert_eq!(guard.backend(), "m");
        assert_eq!(guard.granted(), 30 * SECOND);
        assert!(guard.remaining() > 29 * SECOND);
        assert!(!is_free(&world, "k").await);
        guard.release().await.unwrap();
        assert!(world.memory.is_empty());
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Release)), (1, 1));
        assert_eq!(world.store.calls(Op::Abandon), 0);
    });
}

#[test]
fn tokens_rise_with_every_grant() {
    test(async {
        let world = World::new();
        let mut last = 0;
        for _ in 0..20 {
            let guard = world.lock("k").acquire().await.unwrap();
            let token = guard.fence().unwrap().get();
            assert!(token > last);
            last = token;
            guard.release().await.unwrap();
        }
    });
}

#[test]
fn run_gives_the_output_and_frees_the_lock() {
    test(async {
        let world = World::new();
        let token = world.lock("k").run(|held| async move { held.fence().unwrap().get() }).await.unwrap();
        assert!(token > 0);
        assert!(world.memory.is_empty());
    });
}

#[test]
fn try_acquire_says_busy_with_all_context() {
    test(async {
        let (world, stranger) = neighbours();
        let _held = stranger.lock("k").acquire().await.unwrap();
        let error = world.lock("k").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Busy);
        assert_eq!((error.key(), error.backend(), error.attempts()), (Some(full("k").as_str()), Some("m"), 1));
        assert_eq!(error.retry_after(), Some(5 * SECOND), "30 s are left, but the holder is alive");
        assert!(error.is_retryable() && error.is_contention() && !error.is_lost());
        assert_eq!(world.store.calls(Op::Abandon), 0, "an attempt without a stand leaves nothing to abandon");
    });
}

#[test]
fn a_neighbour_in_the_process_is_busy_without_a_request() {
    test(async {
        let world = World::new();
        let _held = world.lock("k").acquire().await.unwrap();
        let error = world.lock("k").try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Busy, 0));
        assert_eq!(world.store.calls(Op::Acquire), 1);
    });
}

#[test]
fn a_wait_that_runs_out_leaves_the_queue_before_its_error_is_returned() {
    test(async {
        let (world, stranger) = neighbours();
        let held = stranger.lock("k").acquire().await.unwrap();
        let before = world.clock.now();
        let asked = world.lock("k").wait(Wait::UpTo(10 * SECOND)).acquire();
        let error = world.pass_until(SECOND / 10, asked).await.unwrap_err();
        let waited = world.clock.now().since(before);
        assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
        assert_eq!((error.key(), error.backend()), (Some(full("k").as_str()), Some("m")));
        assert!(waited >= 10 * SECOND && waited <= 11 * SECOND, "{waited:?}");
        assert!(error.attempts() >= 2, "the net under the news asks again: {error}");
        assert_eq!(error.retry_after(), Some(5 * SECOND));
        assert!(!error.to_string().contains("itself holds"), "the caller holds nothing: {error}");
        assert_eq!(world.store.calls(Op::Abandon), 1);
        held.release().await.unwrap();
        assert!(world.memory.is_empty(), "nobody of ours was handed the lock");
    });
}

#[test]
fn retry_after_is_the_time_left_when_the_error_is_returned() {
    test(async {
        let (world, stranger) = polled();
        let _held = stranger.lock("k").ttl(7 * SECOND).renew(Renew::Off).acquire().await.unwrap();
        let before = world.clock.now();
        let asked = world.lock("k").wait(Wait::UpTo(4 * SECOND)).acquire();
        let error = world.pass_until(SECOND / 2, asked).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
        let left = error.retry_after().unwrap();
        let over = world.clock.now().since(before) + left;
        assert!(over <= 7 * SECOND + MS, "{left:?} are left, which makes {over:?}");
    });
}

#[test]
fn a_wait_of_zero_asks_once_and_times_out() {
    test(async {
        let (world, stranger) = neighbours();
        let _held = stranger.lock("k").acquire().await.unwrap();
        let error = world.lock("k").wait(Wait::UpTo(Duration::ZERO)).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::WaitTimeout, 1));
    });
}

#[test]
fn a_wait_for_ever_outlasts_everything() {
    test(async {
        let (world, stranger) = neighbours();
        let held = stranger.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(world.lock("k").wait(Wait::Forever).acquire());
        world.pass(600 * SECOND).await;
        assert!(!waiting.is_finished());
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_full_local_queue_refuses_a_caller_at_once() {
    test(async {
        let world = World::new().configure(|defaults| defaults.max_waiters = 2);
        let _held = world.lock("k").acquire().await.unwrap();
        let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(world.lock("k").wait(LONG).acquire())).collect();
        calm().await;
        let error = world.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::QueueFull { max: 2 });
        assert_eq!(error.key(), Some(full("k").as_str()));
        assert!(error.is_retryable());
        // The bound is one of a key.
        freed(&world, "other").await;
        waiting.into_iter().for_each(|task| task.abort());
    });
}

#[test]
fn polling_is_spread_and_bounded_in_time() {
    test(async {
        let (world, stranger) = polled();
        let _held = stranger.lock("k").acquire().await.unwrap();
        let asked = world.lock("k").wait(Wait::UpTo(60 * SECOND)).acquire();
        let before = world.clock.now();
        let error = world.pass_until(20 * MS, asked).await.unwrap_err();
        assert!(world.clock.now().since(before) <= 61 * SECOND);
        // Full jitter below 5 s has a mean of 2.5 s; the first few are shorter.
        assert!((12..=70).contains(&error.attempts()), "{error}");
    });
}

#[test]
fn attempts_can_be_bounded_and_are_counted() {
    test(async {
        let (world, stranger) = polled();
        let _held = stranger.lock("k").acquire().await.unwrap();
        let asked = world.lock("k").wait(Wait::Forever).attempts(3).acquire();
        let error = world.pass_until(20 * MS, asked).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::WaitTimeout, 3));
        assert_eq!(world.store.calls(Op::Acquire), 3);
    });
}

/// A waiter in the store's queue asks again from time to time, because a notification can be lost. This is also true
/// behind a neighbour.
#[test]
fn attempts_are_counted_behind_a_neighbour_if_the_store_hands_locks_over() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let asked = world.lock("k").wait(Wait::Forever).attempts(3).acquire();
        let error = world.pass_until(SECOND / 10, asked).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::WaitTimeout, 3));
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Abandon)), (4, 1));
        // One attempt is enough for a caller that gets the lock handed over in time.
        let next = tokio::spawn(world.lock("k").wait(Wait::Forever).attempts(1).acquire());
        calm().await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 5);
    });
}

/// In other stores no caller asks before its neighbour has released.
#[test]
fn a_neighbours_hold_costs_no_attempt_if_the_store_hands_nothing_over() {
    test(async {
        let world = World::with(&Clock::manual(), |caps| {
            caps.wake = WakeStyle::Poll { from: SECOND, to: SECOND };
        });
        let held = world.lock("k").acquire().await.unwrap();
        let next = tokio::spawn(world.lock("k").wait(Wait::Forever).attempts(1).acquire());
        world.pass(600 * SECOND).await;
        assert!(!next.is_finished());
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 2);
    });
}

#[test]
fn a_signal_that_fails_at_once_does_not_make_a_busy_loop() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::BrokenSignal);
        let asked = world.lock("k").wait(Wait::UpTo(10 * SECOND)).acquire();
        let error = world.pass_until(20 * MS, asked).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::WaitTimeout);
        assert!(error.attempts() < 60, "{error}");
    });
}

/// Both stood in the wait queue of a database: the older one got the lock, and nobody heard of it.
#[test]
fn a_waiter_that_asks_again_drops_its_wait_of_before() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::SilentSignal);
        let waiter = tokio::spawn(world.lock("k").wait(Wait::Forever).acquire());
        for attempts in 1..4 {
            while world.store.calls(Op::Acquire) < attempts {
                world.pass(SECOND).await;
            }
            calm().await;
            assert_eq!(world.store.silent_signals(), 1, "after {attempts} attempts");
        }
        waiter.abort();
    });
}

#[test]
fn a_call_that_the_store_cannot_serve_is_refused_without_a_request() {
    test(async {
        let world = World::new();
        for (lock, kind) in [
            (world.lock("k").ttl(MS), "ttl_out_of_range"),
            (world.lock("k").ttl(Duration::ZERO), "config_invalid"),
            (world.lock("k").ttl(SECOND).renew(Renew::Every(995 * MS)), "config_invalid"),
            (world.lock("k").ttl(SECOND).max_hold(MS), "config_invalid"),
        ] {
            let error = lock.acquire().await.unwrap_err();
            assert_eq!((error.kind().as_str(), error.backend()), (kind, Some("m")), "{error}");
            assert!(!error.is_retryable());
        }
        let long = dlock_runtime::Key::new().value(&"x".repeat(5000));
        let error = world.registry.lock(long).acquire().await.unwrap_err();
        assert_eq!(error.kind().as_str(), "key_too_long");
        assert!(error.key().is_some_and(|key| key.len() < 140));
        assert_eq!(world.store.calls(Op::Acquire), 0);
    });
}

#[test]
fn two_keys_do_not_block_each_other() {
    test(async {
        let world = World::new();
        let one = world.lock("a").try_acquire().await.unwrap();
        let other = world.lock("b").try_acquire().await.unwrap();
        assert_eq!(world.memory.len(), 2);
        one.release().await.unwrap();
        other.release().await.unwrap();
    });
}

#[test]
fn two_namespaces_do_not_share_a_lock() {
    test(async {
        let world = World::new();
        let ours = world.lock("k").acquire().await.unwrap();
        world.registry.configure(|defaults| defaults.namespace = "other".into()).unwrap();
        let theirs = world.lock("k").try_acquire().await.unwrap();
        assert_ne!(ours.key(), theirs.key());
    });
}

/// Two processes, as it were: two registries on one store.
pub(crate) fn neighbours() -> (World, World) {
    let world = World::new();
    let stranger = stranger(&world);
    (world, stranger)
}

pub(crate) fn stranger(world: &World) -> World {
    let registry = dlock_runtime::Registry::with_clock(&world.clock);
    registry.install("m", world.memory.clone()).unwrap();
    registry.set_default("m").unwrap();
    World {
        clock: world.clock.clone(),
        memory: world.memory.clone(),
        store: world.store.clone(),
        registry,
        events: Events::default(),
    }
}

/// As `neighbours`, and the first can only poll.
pub(crate) fn polled() -> (World, World) {
    let world = World::with(&dlock_runtime::Clock::manual(), |caps| {
        caps.wake = WakeStyle::Poll { from: 100 * MS, to: 5 * SECOND };
    });
    let stranger = stranger(&world);
    (world, stranger)
}
