//! Several keys in one request: only if nobody else uses them, and with the same result as one after another.

use dlock_contract::Backend;
use dlock_runtime::{Clock, Cohort, Defaults, ErrorKind, Event, Key, LockAll, Retry, Wait};

use crate::acquire::neighbours;
use crate::support::{LONG, Op, SECOND, Step, World, calm, freed, full, test};

fn all(world: &World) -> LockAll {
    world.registry.lock_all(["b", "a", "c"].map(Key::text))
}

/// How often the store was asked for all, and for one.
fn asked(world: &World) -> (usize, usize) {
    (world.store.calls(Op::Together), world.store.calls(Op::Acquire))
}

#[test]
fn free_locks_take_one_request_and_each_has_a_hold_of_its_own() {
    test(async {
        let world = World::new();
        let guards = all(&world).cohort(Some(Cohort { passes: 64, span: None })).acquire().await.unwrap();
        assert_eq!(asked(&world), (1, 0));
        let mut held: Vec<_> = guards.held().map(|held| (held.key().clone(), held.fence().unwrap().get())).collect();
        assert_eq!(
            held.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
            ["b", "a", "c"].map(full),
            "as written"
        );
        held.sort();
        assert!(held.is_sorted_by_key(|(_, token)| token) && held[0].1 < held[2].1, "{held:?}");
        world.events.expect("Acquired", 3).await;
        world.pass(100 * SECOND).await;
        guards.check().unwrap();
        guards.release().await.unwrap();
        assert!(world.memory.is_empty());
        assert_eq!(world.store.calls(Op::Release), 3);
    });
}

#[test]
fn a_store_without_joint_requests_is_asked_for_one_lock_after_another() {
    test(async {
        let world = World::with(&Clock::manual(), |offers| offers.batch = false);
        all(&world).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(asked(&world), (0, 3));
    });
}

#[test]
fn guards_of_several_locks_are_released_without_a_wait_for_each_answer() {
    test(async {
        for (together, expected) in [(true, SECOND..2 * SECOND), (false, 3 * SECOND..4 * SECOND)] {
            let world = World::with(&Clock::manual(), |offers| offers.batch = together);
            let guards = all(&world).acquire().await.unwrap();
            world.store.always(Op::Release, Step::Late(SECOND));
            let begin = world.clock.now();
            world.pass_until(SECOND / 10, guards.release()).await.unwrap();
            let took = world.clock.now().since(begin);
            assert!(expected.contains(&took), "{took:?}");
        }
    });
}

#[test]
fn guards_of_several_locks_are_released_in_reverse() {
    test(async {
        for together in [true, false] {
            let world = World::with(&Clock::manual(), |offers| offers.batch = together);
            let guards = all(&world).acquire().await.unwrap();
            // The first lock that is released is free, and nobody hears of it.
            world.store.next(Op::Release, [Step::LostReply]);
            world.store.always(Op::Release, Step::Hang);
            let _releases = tokio::spawn(guards.release());
            calm().await;
            let mut free = Vec::new();
            for key in ["a", "b", "c"] {
                if world.memory.look(&full(key)).await.unwrap().note().cloned().is_none() {
                    free.push(key);
                }
            }
            assert_eq!(free, ["c"]);
        }
    });
}

/// The grants have expired when their answer arrives, so the caller must not get them.
#[test]
fn a_joint_grant_that_comes_too_late_is_released() {
    test(async {
        let world = World::new();
        let clock = world.clock.clone();
        world.store.meanwhile(move || clock.advance(7 * SECOND));
        let guards = all(&world).ttl(6 * SECOND).wait(LONG).acquire();
        let guards = world.pass_until(SECOND / 10, guards).await.unwrap();
        guards.check().unwrap();
        assert_eq!(asked(&world), (1, 3), "they were asked for again, one by one");
        guards.release().await.unwrap();
        world.empty().await;
    });
}

/// A body would run without one of its locks.
#[test]
fn fewer_holds_than_were_asked_for_are_refused_and_released() {
    test(async {
        let world = World::new();
        world.store.next(Op::Together, [Step::Fewer]);
        let error = all(&world).wait(LONG).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::Protocol, Some(full("a").as_str())));
        world.empty().await;
    });
}

#[test]
fn one_lock_that_is_taken_is_waited_for_in_the_order_of_the_keys() {
    test(async {
        let world = World::new();
        // Of another process, as far as the turns of this one know.
        let strange = World::on(&world.clock);
        strange.registry.install("other", world.memory.clone()).unwrap();
        let other = strange.lock("b").backend("other").acquire().await.unwrap();
        let error = all(&world).wait(Wait::None).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (&ErrorKind::Busy, Some(full("b").as_str())));
        assert_eq!(world.memory.len(), 1, "what was won before it is given back when the caller hears of it");
        assert_eq!(asked(&world), (1, 2));

        let waiting = tokio::spawn(all(&world).wait(LONG).acquire());
        calm().await;
        assert_eq!(asked(&world), (2, 4));
        other.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_call_with_a_neighbour_at_one_key_does_not_ask_for_all_keys_at_once() {
    test(async {
        let world = World::new();
        let neighbour = world.lock("c").acquire().await.unwrap();
        let waiting = tokio::spawn(all(&world).wait(LONG).acquire());
        calm().await;
        assert_eq!(world.store.calls(Op::Together), 0);
        neighbour.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert!(world.memory.is_empty());
    });
}

#[test]
fn a_request_for_several_locks_counts_as_an_attempt_of_each() {
    test(async {
        let world = World::new();
        let other = World::on(&world.clock);
        other.registry.install("other", world.memory.clone()).unwrap();
        let taken = other.lock("c").backend("other").acquire().await.unwrap();
        for (attempts, expected) in [(1, (0, 3)), (2, (1, 3))] {
            let before = asked(&world);
            let failing = all(&world).attempts(attempts).wait(Wait::UpTo(2 * SECOND)).acquire();
            let error = world.pass_until(SECOND / 10, failing).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::WaitTimeout, "{error}");
            assert_eq!(error.attempts(), attempts, "{error}");
            let now = asked(&world);
            assert_eq!((now.0 - before.0, now.1 - before.1), expected, "{attempts} attempts");
        }
        drop(taken);
    });
}

#[test]
fn a_lost_answer_to_a_joint_request_blocks_no_later_attempt() {
    test(async {
        for step in [Step::LostReply, Step::Fail, Step::Late(100 * SECOND), Step::Hang] {
            let world = World::new();
            world.store.next(Op::Together, [step]);
            let asking = all(&world).wait(Wait::UpTo(60 * SECOND)).acquire();
            let guards = world.pass_until(SECOND / 2, asking).await.unwrap();
            assert!(guards.check().is_ok());
            guards.release().await.unwrap();
            world.empty().await;
            for key in ["a", "b", "c"] {
                freed(&world, key).await;
            }
        }
    });
}

#[test]
fn an_outage_of_a_joint_request_that_is_not_retried_is_returned_and_leaves_nothing() {
    test(async {
        for step in [Step::LostReply, Step::Fail, Step::Refuse] {
            let world = World::new();
            world.store.next(Op::Together, [step]);
            let retry = Retry { times: 0, ..Defaults::default().retry };
            let asking = all(&world).wait(LONG).retry(retry).acquire();
            let error = world.pass_until(SECOND / 2, asking).await.unwrap_err();
            assert!(!matches!(error.kind(), ErrorKind::Busy | ErrorKind::WaitTimeout), "{error}");
            assert_eq!(error.key(), Some(full("a").as_str()));
            assert_eq!(world.store.calls(Op::Acquire), 0);
            world.empty().await;
        }
    });
}

#[test]
fn a_joint_request_cancelled_anywhere_leaves_nothing() {
    test(async {
        for step in [Step::Pass, Step::LostReply, Step::Late(SECOND), Step::Fail] {
            for polls in 0..6 {
                let world = World::new();
                world.store.next(Op::Together, [step]);
                let mut asking = Box::pin(all(&world).wait(LONG).acquire());
                for _ in 0..polls {
                    if crate::support::poll_once(&mut asking).is_ready() {
                        break;
                    }
                    world.clock.advance(SECOND / 5);
                    calm().await;
                }
                drop(asking);
                for _ in 0..8 {
                    world.clock.advance(SECOND / 4);
                    calm().await;
                }
                world.empty().await;
                freed(&world, "b").await;
            }
        }
    });
}

#[test]
fn a_request_for_all_that_is_refused_leaves_nothing_to_abandon() {
    test(async {
        let (world, stranger) = neighbours();
        let held = stranger.lock("b").acquire().await.unwrap();
        let error = all(&world).wait(Wait::None).acquire().await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (&ErrorKind::Busy, 2));
        calm().await;
        assert_eq!((asked(&world), world.store.calls(Op::Abandon)), ((1, 2), 0));
        held.release().await.unwrap();
    });
}

/// A request that the store does not take is no attempt.
#[test]
fn locks_that_are_asked_for_one_by_one_have_one_attempt_each() {
    test(async {
        let world = World::with(&Clock::manual(), |offers| offers.batch = false);
        let guards = all(&world).acquire().await.unwrap();
        let attempts = |(_, event): (String, Event)| match event {
            Event::Acquired { attempts, .. } => Some(attempts),
            _ => None,
        };
        let attempts: Vec<_> = world.events.all().into_iter().filter_map(attempts).collect();
        assert_eq!(attempts, [1, 1, 1]);
        guards.release().await.unwrap();
    });
}

#[test]
fn fair_locks_are_not_asked_for_together() {
    test(async {
        let world = World::new();
        all(&world).fair(true).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(asked(&world), (0, 3));
    });
}

#[test]
fn a_store_that_keeps_failing_is_not_asked_for_all() {
    test(async {
        let world = World::new();
        world.store.always(Op::Acquire, Step::NeverSent);
        for _ in 0..5 {
            world.lock("other").try_acquire().await.unwrap_err();
            world.clock.advance(SECOND / 3);
        }
        let error = all(&world).wait(Wait::None).acquire().await.unwrap_err();
        assert_eq!((error.kind(), asked(&world)), (&ErrorKind::Outage, (0, 5)));
    });
}

/// Its error is that of the request, and comes with it.
#[test]
fn a_failed_request_for_all_is_told_to_the_callers_behind_it() {
    test(async {
        let world = World::new();
        world.store.next(Op::Together, [Step::Hang]);
        world.store.always(Op::Abandon, Step::Hang);
        let together = tokio::spawn(all(&world).wait(Wait::None).acquire());
        calm().await;
        let behind = tokio::spawn(world.lock("b").wait(Wait::None).acquire());
        let error = world.pass_until(SECOND / 10, together).await.unwrap().unwrap_err();
        let told = behind.await.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), told.kind(), told.message()),
            (&ErrorKind::Outage, &ErrorKind::Outage, error.message())
        );
        assert_eq!(asked(&world), (1, 0));
        world.store.always(Op::Abandon, Step::Pass);
    });
}
