//! The engine's side of `once_per`: one start in each period.

use std::time::{Duration, UNIX_EPOCH};

use dlock_contract::Periods;
use dlock_runtime::{ErrorKind, Event, Key, Lock, Mode, OncePer, Wait};

use crate::acquire::neighbours;
use crate::support::{LONG, Op, SECOND, Step, World, calm, full, poll_once, test, until};

const PERIOD: Duration = Duration::from_secs(3600);

pub(crate) fn once(world: &World) -> Lock {
    world.lock("k").once_per(OncePer::new(PERIOD))
}

pub(crate) fn again(world: &World) -> Lock {
    world.lock("k").once_per(OncePer::new(PERIOD).rerun(true))
}

/// A world at the beginning of a period.
pub(crate) fn world() -> World {
    let world = World::new();
    to_next_period(&world);
    world
}

pub(crate) fn to_next_period(world: &World) {
    let period = u64::try_from(PERIOD.as_millis()).unwrap();
    let into = (world.clock.wall_ms() + period / 2) % period;
    world.clock.advance(Duration::from_millis(period - into));
}

#[test]
fn a_period_has_one_run_and_the_next_period_another() {
    test(async {
        let world = world();
        for round in 1..4 {
            assert_eq!(once(&world).run(|_| async { round }).await.unwrap(), round);
            for lock in [once(&world), again(&world).wait(LONG), once(&world).wait(Wait::None)] {
                let error = lock.run(|_| async { panic!("a second run") }).await.unwrap_err();
                assert_eq!((error.kind(), error.key()), (&ErrorKind::AlreadyRun, Some(full("k").as_str())));
                assert!(!error.is_retryable() && !error.is_lost());
            }
            world.clock.advance(PERIOD - SECOND);
            assert_eq!(again(&world).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun);
            world.clock.advance(SECOND);
            world.events.expect("AlreadyRun", 4 * round).await;
            assert!(world.memory.is_empty());
        }
    });
}

#[test]
fn other_callers_hear_at_once_that_a_run_goes_on() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        let guard = once(&stranger).acquire().await.unwrap();
        let error = once(&world).wait(LONG).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::AlreadyRun, 1));
        calm().await;
        assert_eq!(world.store.calls(Op::Abandon), 0, "nothing of it was left");
        guard.release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_caller_that_would_rerun_hears_when_the_run_has_ended() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        for min_hold in [None, Some(5 * SECOND)] {
            let mut winner = once(&world);
            if let Some(min_hold) = min_hold {
                winner = winner.min_hold(min_hold);
            }
            let guard = winner.acquire().await.unwrap();
            let error = again(&stranger).wait(Wait::None).acquire().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Busy);
            let waiting = tokio::spawn(again(&stranger).wait(LONG).run(|_| async { panic!("a second run") }));
            calm().await;
            assert!(!waiting.is_finished());
            guard.release().await.unwrap();
            // The clock stands still, so it has not waited for another end.
            let error = waiting.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::AlreadyRun);
            assert_eq!(world.lock("k").is_locked().await.unwrap(), min_hold.is_some());
            to_next_period(&world);
        }
    });
}

#[test]
fn a_caller_that_would_rerun_takes_over_a_run_that_never_ended() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        for dies in [false, true] {
            let guard = again(&world).acquire().await.unwrap();
            let waiting = tokio::spawn(again(&stranger).wait(LONG).run(|_| async { "taken over" }));
            calm().await;
            if dies {
                world.memory.forget(&full("k"));
            }
            drop(guard);
            assert_eq!(waiting.await.unwrap().unwrap(), "taken over");
            to_next_period(&world);
        }
    });
}

#[test]
fn one_of_the_waiters_for_a_crashed_run_starts_it_again() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        // A caller without a period.
        let holder = stranger.lock("k").acquire().await.unwrap();
        let registries: Vec<_> = (0..3).map(|_| crate::acquire::stranger(&world)).collect();
        let waiting: Vec<_> =
            registries.iter().map(|one| tokio::spawn(once(one).wait(LONG).run(|_| async {}))).collect();
        calm().await;
        holder.release().await.unwrap();
        let mut ran = 0;
        for one in waiting {
            match one.await.unwrap() {
                Ok(()) => ran += 1,
                Err(error) => assert_eq!(error.kind(), &ErrorKind::AlreadyRun),
            }
        }
        assert_eq!(ran, 1);
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_caller_that_gives_up_before_it_heard_of_its_grant_leaves_the_period_to_others() {
    test(async {
        let world = world();
        world.store.next(Op::Acquire, [Step::LostReply]);
        let mut dropped = Box::pin(once(&world).acquire());
        assert!(poll_once(&mut dropped).is_pending());
        drop(dropped);
        world.empty().await;
        assert_eq!(once(&world).run(|_| async { "ran" }).await.unwrap(), "ran");
        assert_eq!(once(&world).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun);
    });
}

#[test]
fn a_run_whose_grant_came_too_late_is_asked_for_again() {
    test(async {
        let world = world();
        for wait in [LONG, Wait::None] {
            world.store.next(Op::Acquire, [Step::Stale(3600 * SECOND)]);
            let ran = once(&world).wait(wait).run(|_| async { "ran" });
            let ran = world.pass_until(SECOND, ran).await;
            match wait {
                // No other call may try in this period: this call goes on.
                LONG => assert_eq!(ran.unwrap(), "ran"),
                _ => {
                    assert_eq!(ran.unwrap_err().kind(), &ErrorKind::Outage);
                    world.empty().await;
                    once(&world).run(|_| async {}).await.unwrap();
                }
            }
            assert_eq!(once(&world).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun);
            to_next_period(&world);
        }
    });
}

#[test]
fn a_grant_that_comes_into_a_shutdown_leaves_the_period_to_others() {
    test(async {
        let (world, stranger) = neighbours();
        to_next_period(&world);
        let registry = world.registry.clone();
        world.store.meanwhile(move || {
            // Its beginning: from here on nothing begins.
            let _ = poll_once(&mut Box::pin(registry.shutdown(Duration::ZERO)));
        });
        assert_eq!(once(&world).acquire().await.unwrap_err().kind(), &ErrorKind::ShutDown);
        world.empty().await;
        until("the period is given back", || world.store.calls(Op::Abandon) == 1).await;
        calm().await;
        once(&stranger).run(|_| async {}).await.unwrap();
    });
}

#[test]
fn the_last_success_of_a_run_can_be_asked_for() {
    test(async {
        let world = world();
        assert_eq!(world.lock("k").last_success().await.unwrap(), None);
        let began = world.clock.wall_ms();
        let clock = world.clock.clone();
        let body = |_| async move { clock.advance(7 * SECOND) };
        once(&world).name("nightly").run(body).await.unwrap();
        let told = world.lock("k").last_success().await.unwrap().unwrap();
        assert_eq!(told.started, UNIX_EPOCH + Duration::from_millis(began));
        assert_eq!((told.took, told.note.site()), (7 * SECOND, Some("nightly")));
        assert_eq!(world.lock("other").last_success().await.unwrap(), None);
    });
}

#[test]
fn a_task_without_a_period_leaves_its_last_success_where_the_store_can_keep_it() {
    test(async {
        let world = world();
        let began = world.clock.wall_ms();
        let clock = world.clock.clone();
        world.lock("k").record(true).run(|_| async move { clock.advance(7 * SECOND) }).await.unwrap();
        let told = world.lock("k").last_success().await.unwrap().unwrap();
        assert_eq!((told.started, told.took), (UNIX_EPOCH + Duration::from_millis(began), 7 * SECOND));
        world.lock("k").run(|_| async {}).await.unwrap();
        assert_eq!(world.lock("k").last_success().await.unwrap(), Some(told), "only of those that ask for it");
        once(&world).run(|_| async {}).await.unwrap();
        let poor = World::with(&world.clock, |caps| caps.periods = false);
        poor.lock("k").record(true).run(|_| async {}).await.unwrap();
        assert_eq!(poor.memory.last_success(&full("k")).await.unwrap(), None);
    });
}

#[test]
fn a_body_that_ran_out_of_time_has_failed_and_is_not_repeated() {
    test(async {
        let world = world();
        let run = once(&world).timeout(SECOND).run(|_| std::future::pending::<()>());
        assert_eq!(world.pass_until(SECOND, run).await.unwrap_err().kind(), &ErrorKind::BodyTimeout);
        assert_eq!(again(&world).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun);
        assert_eq!(world.lock("k").last_success().await.unwrap(), None);
    });
}

#[test]
fn a_lost_run_is_repeated_only_after_its_loss() {
    test(async {
        let world = world();
        let body = |_| async {
            world.memory.forget(&full("k"));
        };
        assert!(once(&world).run(body).await.unwrap_err().is_lost());
        assert_eq!(world.lock("k").last_success().await.unwrap(), None, "nobody knows what it has done");
        again(&world).run(|_| async {}).await.unwrap();
    });
}

#[test]
fn a_run_ends_also_where_its_key_is_kept() {
    test(async {
        let world = world();
        once(&world).min_hold(5 * SECOND).run(|_| async {}).await.unwrap();
        assert!(world.lock("k").is_locked().await.unwrap());
        assert!(world.lock("k").last_success().await.unwrap().is_some());
        assert_eq!(again(&world).acquire().await.unwrap_err().kind(), &ErrorKind::AlreadyRun);
    });
}

#[test]
fn once_per_with_options_that_contradict_it_is_refused() {
    test(async {
        let world = world();
        for lock in [once(&world).mode(Mode::Read), world.lock("k").once_per(OncePer::new(Duration::ZERO))] {
            let error = lock.acquire().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "once_per".into() });
        }
        for offset in [PERIOD, 2 * PERIOD] {
            let lock = world.lock("k").once_per(OncePer::new(PERIOD).offset(offset));
            assert_eq!(lock.acquire().await.unwrap_err().kind(), &ErrorKind::ConfigInvalid { field: "offset".into() });
        }
        let poor = World::with(&world.clock, |caps| caps.periods = false);
        assert_eq!(once(&poor).acquire().await.unwrap_err().kind().as_str(), "unsupported");
        assert!(world.events.all().iter().all(|(_, event)| !matches!(event, Event::Acquired { .. })));
    });
}

/// Of several keys one may be won and the next one not: its period would be over without a run.
#[test]
fn once_per_with_a_list_of_keys_is_refused() {
    test(async {
        let world = world();
        for keys in [&["k", "l"][..], &["k"]] {
            let all = || {
                let all = world.registry.lock_all(keys.iter().copied().map(Key::text));
                all.once_per(OncePer::new(PERIOD))
            };
            for error in [all().acquire().await.unwrap_err(), all().acquire_blocking().unwrap_err()] {
                assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "once_per".into() });
                assert_eq!(error.key(), Some("k"));
            }
        }
        once(&world).run(|_| async {}).await.unwrap();
    });
}
