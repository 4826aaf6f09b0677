//! A store that fails, hangs or answers too late.

use dlock_runtime::{Backoff, ErrorKind, Key, OncePer, Retry, Wait};

use crate::support::{LONG, Op, SECOND, Step, World, calm, freed, full, test};

#[test]
fn a_retryable_failure_is_asked_again_three_times() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Fail);
        let error = world.pass_until(SECOND / 10, world.lock("k").wait(LONG).acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, 4));
        assert_eq!((error.key(), error.backend()), (Some(full("k").as_str()), Some("m")));
        assert!(error.is_retryable());
    });
}

#[test]
fn a_failure_that_passes_is_not_noticed() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Fail, Step::Fail, Step::Fail]);
        let guard = world.pass_until(SECOND / 10, world.lock("k").wait(LONG).acquire()).await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 4);
        guard.release().await.unwrap();
    });
}

#[test]
fn an_answer_ends_the_count_of_failures() {
    test(async {
        let (world, stranger) = crate::acquire::neighbours();
        let held = stranger.lock("k").acquire().await.unwrap();
        let (fail, pass) = (Step::Fail, Step::Pass);
        world.store.next(Op::Acquire, [fail, fail, fail, pass, fail, fail, fail, pass]);
        let waiting = tokio::spawn(world.lock("k").wait(LONG).acquire());
        world.pass(60 * SECOND).await;
        assert!(world.store.calls(Op::Acquire) >= 8);
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_failure_that_no_retry_helps_is_returned_at_once() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Refuse);
        let error = world.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::PermissionDenied, 1));
        assert!(!error.is_retryable());
    });
}

#[test]
fn a_caller_that_does_not_wait_does_not_retry() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Fail);
        let error = world.lock("k").try_acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Outage, 1));
    });
}

#[test]
fn a_silent_store_is_an_outage_within_the_wait() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Hang);
        let before = world.clock.now();
        let asked = world.lock("k").wait(Wait::UpTo(12 * SECOND)).acquire();
        let error = world.pass_until(SECOND / 10, asked).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Outage);
        assert!(world.clock.now().since(before) <= 13 * SECOND);
        let before = world.clock.now();
        let error = world.pass_until(SECOND / 10, world.lock("other").try_acquire()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Outage);
        assert!(world.clock.now().since(before) <= 6 * SECOND);
    });
}

#[test]
fn a_release_that_fails_does_not_block_the_neighbours_for_the_ttl() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").ttl(600 * SECOND).acquire().await.unwrap();
        world.store.always(Op::Release, Step::Fail);
        guard.release().await.unwrap();
        world.store.always(Op::Acquire, Step::Fail);
        world.pass(SECOND).await;
        let error = world.lock("k").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Outage, "{error}");
    });
}

#[test]
fn a_lost_reply_is_found_by_the_next_attempt_of_the_same_owner() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::LostReply]);
        let guard = world.pass_until(SECOND / 10, world.lock("k").wait(LONG).acquire()).await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 2);
        // Counted from the second request: the first is long over.
        assert!(guard.remaining() > 28 * SECOND, "{:?}", guard.remaining());
        guard.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_lost_reply_of_a_caller_that_gives_up_leaves_nothing() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::LostReply]);
        let error = world.pass_until(SECOND / 10, world.lock("k").try_acquire()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Outage);
        world.empty().await;
    });
}

/// An answer that comes after the ttl is worth nothing, however good it sounds.
#[test]
fn a_grant_whose_validity_is_over_is_released_and_no_body_starts() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Stale(31 * SECOND)]);
        let run = world.lock("k").wait(LONG).run(|held| async move { held.check() });
        world.pass_until(SECOND / 10, run).await.unwrap().unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Release)), (2, 2));
    });
}

/// A caller gives a late grant back, gets no answer, and asks again. The release that was under way must not end the
/// lock that it gets then.
#[test]
fn a_late_release_frees_nothing_of_the_next_attempt() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Stale(31 * SECOND)]);
        world.store.next(Op::Release, [Step::Stall]);
        let guard = world.pass_until(SECOND / 10, world.lock("k").wait(LONG).acquire()).await.unwrap();
        world.store.deliver().await;
        assert!(!world.memory.is_empty(), "the late release has freed the lock");
        guard.release().await.unwrap();
        world.empty().await;
    });
}

/// Its own start would look like another one's, so it does not go on.
/// It would be in the way for its whole ttl.
#[test]
fn a_grant_that_was_not_released_at_once_is_released_before_the_next_attempt() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Stale(31 * SECOND)]);
        world.store.next(Op::Release, [Step::Fail]);
        let begin = world.clock.now();
        let guard = world.pass_until(SECOND / 10, world.lock("k").wait(LONG).acquire()).await.unwrap();
        let took = world.clock.now().since(begin);
        assert!(took < 10 * SECOND, "{took:?}");
        guard.release().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn a_run_of_a_period_whose_end_is_unknown_is_an_outage() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Stale(31 * SECOND)]);
        world.store.next(Op::Release, [Step::Stall]);
        let period = OncePer::new(86_400 * SECOND);
        let daily = || world.lock("k").once_per(period).wait(LONG);
        let error = world.pass_until(SECOND / 10, daily().acquire()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (&ErrorKind::Outage, true));
        world.empty().await;
        daily().acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn grants_that_always_come_too_late_are_an_outage() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Stale(31 * SECOND));
        for wait in [Wait::None, LONG, Wait::Forever] {
            let run = world.lock("k").wait(wait).run(|_| async { panic!("the body must not start") });
            let error = world.pass_until(SECOND / 10, run).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Outage, "{error}");
            world.empty().await;
        }
    });
}

#[test]
fn a_silent_release_costs_the_caller_two_seconds_and_is_tried_again() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Release, [Step::Hang]);
        let before = world.clock.now();
        world.pass_until(SECOND / 10, guard.release()).await.unwrap();
        assert!(world.clock.now().since(before) <= 3 * SECOND);
        world.empty().await;
        world.events.expect("ReleaseFailed", 1).await;
        freed(&world, "k").await;
        // Our thread tells in order: after this one, nothing of the first is on its way.
        drop(world.lock("last").acquire().await.unwrap());
        let is_last = |(label, event): &(String, dlock_runtime::Event)| {
            label.contains("last") && matches!(event, dlock_runtime::Event::Released { .. })
        };
        crate::support::until("the last one is told", || world.events.all().iter().any(is_last)).await;
        assert_eq!(world.events.count("Released"), 3, "each once");
    });
}

#[test]
fn a_release_that_is_refused_for_good_is_not_tried_for_ever() {
    test(async {
        let world = World::new();
        world.store.always(Op::Release, Step::Refuse);
        drop(world.lock("k").acquire().await.unwrap());
        world.pass(60 * SECOND).await;
        assert_eq!(world.store.calls(Op::Release), 1);
        world.events.expect("ReleaseFailed", 1).await;
    });
}

fn retry(times: u32) -> Retry {
    Retry { times, backoff: Some(Backoff::new(SECOND / 10, SECOND)) }
}

#[test]
fn a_request_that_never_left_is_not_abandoned() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::NeverSent, Step::NeverSent]);
        let asked = world.lock("k").wait(LONG).acquire();
        world.pass_until(SECOND / 10, asked).await.unwrap().release().await.unwrap();
        world.store.always(Op::Acquire, Step::NeverSent);
        world.lock("k").try_acquire().await.unwrap_err();
        world.store.always(Op::Together, Step::NeverSent);
        let all = world.registry.lock_all(["a", "b"].map(Key::text)).wait(Wait::None).acquire();
        all.await.unwrap_err();
        world.pass(SECOND).await;
        assert_eq!(world.store.calls(Op::Abandon), 0);
        // An attempt before it may have left something all the same.
        world.store.next(Op::Acquire, [Step::Fail]);
        let asked = world.lock("k").wait(LONG).retry(retry(1)).acquire();
        world.pass_until(SECOND / 10, asked).await.unwrap_err();
        world.pass(SECOND).await;
        assert_eq!(world.store.calls(Op::Abandon), 1);
    });
}

#[test]
fn a_store_that_keeps_failing_is_asked_once_a_second_until_it_answers() {
    test(async {
        let world = World::new();
        // Its first renewal comes after the count of the probes: an answer to it would let further requests through.
        let held = world.lock("held").ttl(60 * SECOND).acquire().await.unwrap();
        world.store.always(Op::Acquire, Step::NeverSent);
        for _ in 0..5 {
            world.lock("k").try_acquire().await.unwrap_err();
            world.clock.advance(SECOND / 3);
        }
        let before = world.store.calls(Op::Acquire);
        for _ in 0..100 {
            let error = world.lock("k").try_acquire().await.unwrap_err();
            assert_eq!((error.kind(), error.key()), (&ErrorKind::Outage, Some(full("k").as_str())));
            assert!(error.is_retryable() && !error.may_have_left());
            world.clock.advance(SECOND / 10);
        }
        let probes = world.store.calls(Op::Acquire) - before;
        assert!((5..=20).contains(&probes), "{probes} in ten seconds");
        // A retry is spent on a refusal as on any failure; it costs its pause and no request.
        let error =
            world.pass_until(SECOND / 100, world.lock("k").wait(LONG).retry(retry(2)).acquire()).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Outage);
        // Renewals and releases are never held back, and their answers are answers.
        world.store.always(Op::Acquire, Step::Pass);
        world.pass(12 * SECOND).await;
        held.check().unwrap();
        world.lock("k").try_acquire().await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
        assert_eq!(world.store.calls(Op::Abandon), 0, "what was refused here, or never left, is not undone");
    });
}

/// Each call may have left something in the store, and there is no separate task for each.
#[test]
fn many_failed_calls_are_abandoned_a_few_at_a_time_and_soon_after_the_outage() {
    const CALLS: usize = 20_000;
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Hang);
        world.store.always(Op::Abandon, Step::Fail);
        let asks: Vec<_> =
            (0..CALLS).map(|n| tokio::spawn(world.registry.lock(Key::text("k").value(&n)).try_acquire())).collect();
        crate::support::until("all have asked", || world.store.calls(Op::Acquire) == CALLS).await;
        world.clock.advance(6 * SECOND);
        for asked in asks {
            assert_eq!(asked.await.unwrap().unwrap_err().kind(), &ErrorKind::Outage);
        }
        let pass = async |quarters| {
            for _ in 0..quarters {
                world.clock.advance(SECOND / 4);
                calm().await;
            }
        };
        // Until then the outage is not known.
        pass(8).await;
        let before = world.store.calls(Op::Abandon);
        pass(20).await;
        let during = world.store.calls(Op::Abandon) - before;
        assert!(during < 100, "{during} undoings in five seconds of an outage");
        let before = world.store.calls(Op::Abandon);
        world.store.always(Op::Abandon, Step::Pass);
        world.store.always(Op::Acquire, Step::Pass);
        crate::support::until("all that is remembered is undone", || {
            world.clock.advance(SECOND / 100);
            world.store.calls(Op::Abandon) - before > 16_000
        })
        .await;
        pass(20).await;
        let remembered = world.store.calls(Op::Abandon) - before;
        assert!(remembered <= 16_384 + 64, "{remembered} of {CALLS} were remembered");
    });
}

/// Renewals share the thread with them.
#[test]
fn many_dropped_calls_are_abandoned_a_few_at_a_time() {
    const CALLS: usize = 200;
    test(async {
        let world = World::new();
        for op in [Op::Acquire, Op::Abandon] {
            world.store.always(op, Step::Hang);
        }
        let asks: Vec<_> =
            (0..CALLS).map(|n| tokio::spawn(world.registry.lock(Key::text("k").value(&n)).try_acquire())).collect();
        crate::support::until("all have asked", || world.store.calls(Op::Acquire) == CALLS).await;
        for asked in &asks {
            asked.abort();
        }
        crate::support::until("some are undone", || world.store.calls(Op::Abandon) >= 64).await;
        calm().await;
        assert_eq!(world.store.calls(Op::Abandon), 64);
    });
}

#[test]
fn a_store_is_ready_as_soon_as_it_answers_again_and_then_takes_calls_at_once() {
    test(async {
        let world = World::new();
        world.registry.ready("m").await.unwrap();
        let all = |step| [Op::Acquire, Op::Abandon].map(|op| world.store.always(op, step));
        all(Step::Fail);
        world.store.next(Op::Ready, [Step::Fail]);
        // Until the store is known to fail: calls then fail without being sent.
        let asks = || world.lock("k").retry(retry(0)).try_acquire();
        for _ in 0..5 {
            world.pass(SECOND / 3).await;
            asks().await.unwrap_err();
        }
        let sent = world.store.calls(Op::Acquire);
        asks().await.unwrap_err();
        assert_eq!(world.store.calls(Op::Acquire), sent);
        let error = world.registry.ready("m").await.unwrap_err();
        assert_eq!((error.kind(), error.backend()), (&ErrorKind::Outage, Some("m")));
        all(Step::Pass);
        world.registry.ready("m").await.unwrap();
        asks().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn an_unknown_backend_is_not_ready() {
    test(async {
        let error = World::new().registry.ready("nobody").await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BackendNotRegistered { .. }), "{error}");
    });
}
