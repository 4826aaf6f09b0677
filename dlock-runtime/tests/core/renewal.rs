//! Renewal: held locks stay held, and the cost of that.

use std::time::Duration;

use dlock_runtime::{ErrorKind, LossCause, Renew};

use crate::support::{MS, Op, SECOND, Step, World, block_for_three_ttls, calm, full, is_free, test};

#[test]
fn a_hold_lives_for_ten_times_its_ttl() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        for _ in 0..10 {
            world.pass(30 * SECOND).await;
            guard.check().unwrap();
            assert!(!is_free(&world, "k").await);
        }
        // At a third of the ttl, and at most a quarter of that early.
        let renewals = world.store.calls(Op::Renew);
        assert!((30..=41).contains(&renewals), "{renewals}");
        assert_eq!(world.events.count("NearExpiry"), 0);
        guard.release().await.unwrap();
        world.pass(60 * SECOND).await;
        assert_eq!(world.store.calls(Op::Renew), renewals, "nothing is renewed after its release");
    });
}

#[test]
fn a_thousand_holds_are_renewed_by_a_few_requests() {
    test(async {
        let world = World::new();
        let mut guards = Vec::new();
        for id in 0..1000 {
            let key = dlock_runtime::Key::text("k:").value(&id);
            guards.push(world.registry.lock(key).acquire().await.unwrap());
            // Not at the very same instant, as in real life.
            world.clock.advance(MS / 10);
        }
        // In steps so fine that most holds would be due by themselves.
        for _ in 0..1550 {
            world.clock.advance(20 * MS);
            calm().await;
        }
        assert!(guards.iter().all(|guard| guard.check().is_ok()));
        // Three rounds of four full batches, some of them cut by a tick.
        let renewals = world.store.calls(Op::Renew);
        assert!((12..=36).contains(&renewals), "{renewals}");
    });
}

#[test]
fn renewals_are_sent_at_the_stated_interval() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").renew(Renew::Every(2 * SECOND)).acquire().await.unwrap();
        world.pass(60 * SECOND).await;
        let renewals = world.store.calls(Op::Renew);
        assert!((30..=44).contains(&renewals), "{renewals}");
        guard.check().unwrap();
    });
}

#[test]
fn without_renewal_a_hold_ends_at_its_ttl() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
        world.pass(29 * SECOND).await;
        guard.check().unwrap();
        world.pass(SECOND).await;
        let error = guard.check().unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Deadline));
        assert_eq!((error.key(), error.backend()), (Some(full("k").as_str()), Some("m")));
        assert_eq!(world.store.calls(Op::Renew), 0);
        assert_eq!(guard.remaining(), Duration::ZERO);
    });
}

#[test]
fn max_hold_ends_a_hold_that_could_still_be_renewed() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").max_hold(100 * SECOND).acquire().await.unwrap();
        world.pass(99 * SECOND).await;
        guard.check().unwrap();
        assert!(guard.remaining() <= SECOND);
        world.pass(SECOND).await;
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::MaxHold));
        world.events.expect("Lost", 1).await;
        world.events.expect("NearExpiry", 1).await;
    });
}

/// Not from the answer: the store may have granted it as soon as it was asked.
#[test]
fn max_hold_counts_from_before_the_request() {
    test(async {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Late(4 * SECOND)]);
        let asked = world.lock("k").max_hold(60 * SECOND).acquire();
        let guard = world.pass_until(SECOND / 10, asked).await.unwrap();
        world.pass(55 * SECOND).await;
        guard.check().unwrap();
        world.pass(1100 * MS).await;
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::MaxHold));
    });
}

#[test]
fn the_registry_bounds_every_hold_by_an_hour() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        for _ in 0..59 {
            world.pass(60 * SECOND).await;
        }
        guard.check().unwrap();
        world.pass(61 * SECOND).await;
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::MaxHold));
    });
}

#[test]
fn a_renewal_that_fails_is_tried_again_and_the_hold_is_kept() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Fail, Step::Fail, Step::Fail]);
        world.pass(120 * SECOND).await;
        guard.check().unwrap();
        world.events.expect("RenewalFailed", 3).await;
        assert_eq!(world.events.count("Lost"), 0);
    });
}

/// Later would leave no time for the third and the fourth; all of them at one moment would be a herd.
#[test]
fn a_failed_renewal_is_tried_again_within_a_quarter_of_what_is_left() {
    test(async {
        const STEP: Duration = Duration::from_millis(100);
        // Enough that a longer pause is drawn once at least.
        for _ in 0..16 {
            let world = World::new();
            let guard = world.lock("k").acquire().await.unwrap();
            world.store.always(Op::Renew, Step::Fail);
            let failed = async |times| {
                while world.store.calls(Op::Renew) < times {
                    world.clock.advance(STEP);
                    calm().await;
                }
            };
            failed(1).await;
            let (begin, left) = (world.clock.now(), guard.remaining());
            failed(2).await;
            let pause = world.clock.now().since(begin);
            assert!((left / 8 - 2 * STEP..=left / 4 + 2 * STEP).contains(&pause), "{pause:?} of {left:?}");
        }
    });
}

#[test]
fn a_hold_on_a_short_grant_is_renewed_100_ms_after_its_take_over() {
    test(async {
        let world = World::new();
        let took = async || {
            world.store.next(Op::Acquire, [Step::Short(SECOND)]);
            let guard = world.lock("k").acquire().await.unwrap();
            assert!(guard.remaining() < SECOND);
            guard
        };
        let brief = took().await;
        world.pass(50 * MS).await;
        brief.release().await.unwrap();
        world.pass(SECOND).await;
        assert_eq!(world.store.calls(Op::Renew), 0, "a hold that is over before pays nothing");
        let guard = took().await;
        world.pass(105 * MS).await;
        assert_eq!(world.store.calls(Op::Renew), 1);
        // From here on it has its full ttl, whatever the store says.
        world.store.always(Op::Renew, Step::Hang);
        world.pass(20 * SECOND).await;
        guard.check().unwrap();
    });
}

/// Of different ttls, which the engine sorts: each answer is for the hold that it was asked about.
#[test]
fn each_hold_of_a_batch_gets_its_own_answer() {
    test(async {
        for gone in ["a", "b", "c"] {
            let world = World::new();
            let mut held = Vec::new();
            for (key, ttl) in [("a", 6), ("b", 12), ("c", 9)] {
                let lock = world.lock(key).ttl(ttl * SECOND).renew(Renew::Every(2 * SECOND));
                held.push((key, lock.acquire().await.unwrap()));
            }
            world.memory.forget(&full(gone));
            world.pass(5 * SECOND).await;
            for (key, guard) in held {
                match guard.check() {
                    Ok(()) => assert_ne!(key, gone, "it was taken away, and is believed in"),
                    Err(error) => {
                        assert_eq!((key, error.kind()), (gone, &ErrorKind::Lost(LossCause::Store)));
                    }
                }
            }
            assert!(world.store.calls(Op::Renew) <= 4, "they are renewed together");
        }
    });
}

#[test]
fn a_late_answer_to_an_early_renewal_shortens_nothing() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.pass(15 * SECOND).await;
        assert!(guard.remaining() > 22 * SECOND, "{:?}", guard.remaining());
        // It says that the lock was prolonged as it was taken.
        world.store.next(Op::Renew, [Step::Stale(21 * SECOND)]);
        world.store.always(Op::Renew, Step::Hang);
        world.pass(7 * SECOND).await;
        assert!(guard.remaining() > 14 * SECOND, "{:?}", guard.remaining());
    });
}

#[test]
fn a_renewal_answered_after_it_was_given_up_counts() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").ttl(6 * SECOND).acquire().await.unwrap();
        // Given up after 2 s, answered after 3; those after it stay without an answer.
        world.store.next(Op::Renew, [Step::Late(3 * SECOND)]);
        world.store.always(Op::Renew, Step::Hang);
        world.pass(5500 * MS).await;
        world.events.expect("RenewalFailed", 1).await;
        world.pass(1500 * MS).await;
        guard.check().unwrap();
        world.pass(SECOND).await;
        guard.check().unwrap_err();
    });
}

#[test]
fn a_late_answer_says_that_the_hold_is_lost() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").ttl(6 * SECOND).acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Late(3 * SECOND)]);
        world.store.always(Op::Renew, Step::Hang);
        world.memory.forget(&full("k"));
        world.pass(5200 * MS).await;
        assert_eq!(guard.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
    });
}

#[test]
fn a_renewal_that_hangs_is_given_up_and_tried_again() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Hang]);
        world.pass(60 * SECOND).await;
        guard.check().unwrap();
        world.events.expect("RenewalFailed", 1).await;
    });
}

/// Not by the one that the end of the lease would call for, either.
#[test]
fn a_renewal_under_way_is_not_sent_again() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").renew(Renew::Every(20 * SECOND)).acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Late(5 * SECOND)]);
        // Sent after 20 s at the latest; at 24 s a fifth of the ttl is left.
        world.pass(24500 * MS).await;
        assert_eq!(world.store.calls(Op::Renew), 1);
        world.events.expect("NearExpiry", 1).await;
        guard.check().unwrap();
    });
}

/// Also where the panic comes before there is a future to catch it in.
#[test]
fn a_renewal_that_panics_is_tried_again() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.next(Op::Renew, [Step::Panic, Step::Panic]);
        world.pass(60 * SECOND).await;
        guard.check().unwrap();
        world.events.expect("RenewalFailed", 2).await;
    });
}

#[test]
fn a_slow_renewal_does_not_delay_those_of_another_store() {
    test(async {
        let world = World::new();
        let other = dlock_memory::Memory::with_clock(&world.clock);
        world.registry.install("other", other).unwrap();
        world.store.always(Op::Renew, Step::Hang);
        let slow = world.lock("k").acquire().await.unwrap();
        let well = world.lock("k").backend("other").acquire().await.unwrap();
        world.pass(120 * SECOND).await;
        slow.check().unwrap_err();
        well.check().unwrap();
    });
}

/// One request for both; the short one does not wait for its answer, and the long one does.
#[test]
fn a_short_ttl_cuts_off_the_answers_of_no_other_hold() {
    test(async {
        let world = World::new();
        let long = world.lock("long").renew(Renew::Every(SECOND)).acquire().await.unwrap();
        let short = world.lock("short").ttl(1500 * MS).renew(Renew::Every(SECOND)).acquire().await.unwrap();
        world.store.always(Op::Renew, Step::Late(SECOND));
        // In steps that the tick of both is a part of: they are due in the same one.
        for _ in 0..60 {
            world.clock.advance(100 * MS);
            calm().await;
        }
        assert!(short.check().is_err(), "nothing of it was answered in time");
        long.check().unwrap();
        assert!(long.remaining() > 25 * SECOND, "{:?}", long.remaining());
        let failed = world.events.all();
        let of_long = |(label, event): &&(String, dlock_runtime::Event)| {
            label.contains("long") && format!("{event:?}").starts_with("RenewalFailed")
        };
        assert_eq!(failed.iter().filter(of_long).count(), 0, "{failed:?}");
    });
}

#[test]
fn a_renewal_answer_that_is_already_old_does_not_make_a_busy_loop() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.always(Op::Renew, Step::Stale(25 * SECOND));
        world.pass(20 * SECOND).await;
        guard.check().unwrap();
        let renewals = world.store.calls(Op::Renew);
        assert!(renewals < 100, "{renewals}");
    });
}

#[test]
fn confirm_asks_the_store_and_prolongs() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").renew(Renew::Off).acquire().await.unwrap();
        world.pass(20 * SECOND).await;
        guard.confirm().await.unwrap();
        assert!(guard.remaining() > 29 * SECOND);
        world.store.next(Op::Renew, [Step::Fail]);
        let error = guard.confirm().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::Outage, Some(full("k").as_str())));
        guard.check().unwrap();
        world.memory.forget(&full("k"));
        guard.check().unwrap();
        assert_eq!(guard.confirm().await.unwrap_err().kind(), &ErrorKind::Lost(LossCause::Store));
        guard.check().unwrap_err();
    });
}

#[test]
fn near_expiry_is_reported_once_until_the_hold_is_renewed() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").acquire().await.unwrap();
        world.store.always(Op::Renew, Step::Fail);
        world.pass(26 * SECOND).await;
        world.events.expect("NearExpiry", 1).await;
        guard.check().unwrap();
        world.store.always(Op::Renew, Step::Pass);
        world.pass(30 * SECOND).await;
        guard.check().unwrap();
        world.events.expect("NearExpiry", 1).await;
        world.store.always(Op::Renew, Step::Fail);
        world.pass(60 * SECOND).await;
        world.events.expect("NearExpiry", 2).await;
        world.events.expect("Lost", 1).await;
    });
}

#[test]
fn a_runtime_that_is_blocked_for_three_ttls_keeps_its_lock() {
    test(async {
        let world = World::new();
        let guard = world.lock("k").ttl(6 * SECOND).acquire().await.unwrap();
        block_for_three_ttls(&world, &guard);
        guard.release().await.unwrap();
    });
}
