//! A store that does not answer, or answers late, as several callers of one process see it.

use std::time::Duration;

use dlock_runtime::{Backoff, Cohort, ErrorKind, Mode, Retry, Wait};

use crate::support::{LONG, MS, Op, SECOND, Step, World, calm, poll_once, test};

/// The second caller must not get an error that names a holder, because nobody can hold the lock.
#[test]
fn an_outage_is_an_outage_for_the_next_caller_too() {
    test(async {
        let world = World::new();
        for op in [Op::Acquire, Op::Abandon] {
            world.store.always(op, Step::Fail);
        }
        for _ in 0..5 {
            let error = world.lock("k").try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Outage, "{error}");
            world.pass(SECOND / 10).await;
        }
    });
}

/// One caller asks, and the others wait for it. As far as this process knows, nobody holds the lock.
#[test]
fn an_outage_is_no_contention_for_the_waiters_behind_the_caller_that_asks() {
    for step in [Step::Hang, Step::Fail] {
        test(async {
            let world = World::new();
            for op in [Op::Acquire, Op::Abandon] {
                world.store.always(op, step);
            }
            let asks: Vec<_> = (0..40)
                .map(|n| {
                    let wait = if n % 4 == 0 { Wait::None } else { Wait::UpTo(SECOND * (n % 7)) };
                    tokio::spawn(world.lock("k").wait(wait).acquire())
                })
                .collect();
            world.pass(60 * SECOND).await;
            for asked in asks {
                let error = asked.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::Outage, "{error}");
                assert!(!error.is_contention() && error.is_retryable());
            }
        });
    }
}

/// The store has said that others hold the lock, and fell silent after that: the last word of it counts.
#[test]
fn a_waiter_at_a_healthy_store_hears_of_contention() {
    test(async {
        let world = World::new();
        let held = world.lock("k").acquire().await.unwrap();
        let behind: Vec<_> =
            (1..4).map(|n| tokio::spawn(world.lock("k").wait(Wait::UpTo(SECOND * n)).acquire())).collect();
        world.pass(5 * SECOND).await;
        for behind in behind {
            assert_eq!(behind.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
        }
        held.release().await.unwrap();
    });
}

/// The other way round: it has said so, and has failed since.
#[test]
fn a_waiter_at_a_store_that_fails_now_hears_of_the_failure() {
    test(async {
        let (world, stranger) = crate::acquire::polled();
        let held = stranger.lock("k").acquire().await.unwrap();
        let retry = Retry { times: 100, backoff: Some(Backoff::new(SECOND, SECOND)) };
        let asks = tokio::spawn(world.lock("k").wait(LONG).retry(retry).acquire());
        calm().await;
        let behind = tokio::spawn(world.lock("k").wait(Wait::UpTo(10 * SECOND)).acquire());
        world.pass(5 * SECOND).await;
        world.store.always(Op::Acquire, Step::Fail);
        world.pass(6 * SECOND).await;
        assert_eq!(behind.await.unwrap().unwrap_err().kind(), &ErrorKind::Outage);
        asks.abort();
        held.release().await.unwrap();
    });
}

#[test]
fn a_neighbour_that_only_asks_is_no_contention() {
    let three = Mode::Permits(std::num::NonZeroU32::new(3).unwrap());
    for mode in [Mode::Read, three] {
        test(async {
            let world = World::new();
            world.store.always(Op::Acquire, Step::Late(SECOND / 10));
            let asks: Vec<_> =
                (0..3).map(|_| tokio::spawn(world.lock("k").mode(mode).wait(Wait::None).acquire())).collect();
            world.pass(2 * SECOND).await;
            let mut held = Vec::new();
            for asked in asks {
                held.push(asked.await.unwrap().unwrap_or_else(|error| panic!("{mode:?}: {error}")));
            }
        });
    }
}

/// Readers ask one after the other, and each is answered: a wait that ends behind them is no outage.
#[test]
fn a_waiter_behind_readers_that_get_answers_hears_of_no_outage() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Late(SECOND));
        let asks = |wait| tokio::spawn(world.lock("k").mode(Mode::Read).wait(wait).acquire());
        let (one, two) = (asks(LONG), asks(LONG));
        let late = asks(Wait::UpTo(1500 * MS));
        world.pass(4 * SECOND).await;
        drop(one.await.unwrap().unwrap());
        drop(two.await.unwrap().unwrap());
        assert_eq!(late.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
    });
}

/// One request is enough for all of them.
#[test]
fn the_answer_to_a_caller_that_does_not_wait_is_shared_with_others_that_do_not_wait() {
    test(async {
        let (world, stranger) = crate::acquire::neighbours();
        let held = stranger.lock("k").acquire().await.unwrap();
        world.store.always(Op::Acquire, Step::Late(SECOND / 10));
        let asks: Vec<_> = (0..5).map(|_| tokio::spawn(world.lock("k").wait(Wait::None).acquire())).collect();
        world.pass(SECOND).await;
        for asked in asks {
            assert_eq!(asked.await.unwrap().unwrap_err().kind(), &ErrorKind::Busy);
        }
        assert_eq!(world.store.calls(Op::Acquire), 1);
        held.release().await.unwrap();
    });
}

/// Not only when the time that a request may take is over.
#[test]
fn the_error_of_the_store_is_shared_with_the_callers_behind_that_do_not_wait() {
    test(async {
        let world = World::new();
        for op in [Op::Acquire, Op::Abandon] {
            world.store.always(op, Step::Fail);
        }
        let retry = Retry { times: 100, backoff: Some(Backoff::new(SECOND, SECOND)) };
        let asks = tokio::spawn(world.lock("k").wait(LONG).retry(retry).acquire());
        calm().await;
        let begin = world.clock.now();
        let error = world.pass_until(SECOND / 50, world.lock("k").try_acquire()).await.unwrap_err();
        let took = world.clock.now().since(begin);
        assert!(error.to_string().contains("scripted outage"), "{error}");
        assert!(took < 2 * SECOND, "{took:?}");
        asks.abort();
    });
}

#[test]
fn one_of_several_callers_that_do_not_wait_gets_the_lock_and_the_others_are_busy() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Late(SECOND / 10));
        let asks: Vec<_> = (0..5).map(|_| tokio::spawn(world.lock("k").wait(Wait::None).acquire())).collect();
        world.pass(SECOND).await;
        let (mut held, mut busy) = (Vec::new(), 0);
        for asked in asks {
            match asked.await.unwrap() {
                Ok(guard) => held.push(guard),
                Err(error) => busy += usize::from(*error.kind() == ErrorKind::Busy),
            }
        }
        assert_eq!((held.len(), busy, world.store.calls(Op::Acquire)), (1, 4, 1));
    });
}

#[test]
fn a_caller_that_does_not_wait_hears_of_a_shutdown_as_a_shutdown() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Hang);
        let asks: Vec<_> = (0..3).map(|_| tokio::spawn(world.lock("k").wait(Wait::None).acquire())).collect();
        crate::support::calm().await;
        let registry = world.registry.clone();
        let ends = tokio::spawn(async move { registry.shutdown(Duration::ZERO).await });
        for asked in asks {
            assert_eq!(asked.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        }
        world.pass(10 * SECOND).await;
        ends.await.unwrap();
    });
}

/// Opening a connection takes time, so a request has a quarter of a second, and so have the callers behind it.
#[test]
fn a_wait_that_is_shorter_than_a_request_ends_with_its_answer() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(200 * MS)]);
        let short = || world.lock("k").wait(Wait::UpTo(50 * MS));
        let asks = tokio::spawn(short().acquire());
        calm().await;
        let behind = tokio::spawn(short().acquire());
        world.pass(210 * MS).await;
        assert!(asks.is_finished() && behind.is_finished());
        let held = asks.await.unwrap().unwrap();
        assert_eq!(behind.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
        held.release().await.unwrap();
    });
}

/// The store has answered since, although not to the caller that has the turn now.
#[test]
fn a_waiter_behind_a_caller_that_was_passed_a_lock_hears_of_no_outage() {
    for cohort in [false, true] {
        test(async move {
            let world = World::new();
            let lock = || {
                let lock = world.lock("k").wait(LONG);
                if cohort { lock.cohort(Some(Cohort { passes: 8, span: None })) } else { lock }
            };
            let held = lock().acquire().await.unwrap();
            let mut next = Box::pin(lock().acquire());
            assert!(poll_once(&mut next).is_pending());
            let behind = tokio::spawn(lock().wait(Wait::UpTo(SECOND)).acquire());
            calm().await;
            held.release().await.unwrap();
            world.pass(1100 * MS).await;
            assert_eq!(behind.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
            next.await.unwrap().release().await.unwrap();
        });
    }
}

/// The failure is over: the store has answered since, and said that others hold the lock.
#[test]
fn a_waiter_at_a_store_that_has_failed_before_hears_of_contention() {
    test(async {
        let (world, stranger) = crate::acquire::polled();
        let held = stranger.lock("k").acquire().await.unwrap();
        world.store.next(Op::Acquire, [Step::Fail]);
        let retry = Retry { times: 100, backoff: Some(Backoff::new(SECOND, SECOND)) };
        let asks = tokio::spawn(world.lock("k").wait(LONG).retry(retry).acquire());
        calm().await;
        let behind = tokio::spawn(world.lock("k").wait(Wait::UpTo(10 * SECOND)).acquire());
        world.pass(11 * SECOND).await;
        assert_eq!(behind.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
        asks.abort();
        held.release().await.unwrap();
    });
}
