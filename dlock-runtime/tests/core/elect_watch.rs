//! Watching who leads.

use std::pin::pin;
use std::time::{Duration, UNIX_EPOCH};

use dlock_contract::Backend;
use dlock_runtime::{ErrorKind, LeaderWatch, SeenLeader};
use futures::StreamExt;

use crate::acquire::neighbours;
use crate::support::{MS, Op, SECOND, Step, World, calm, poll_once, test};

/// The next change, for which time passes.
async fn next(world: &World, watch: &mut LeaderWatch) -> Option<SeenLeader> {
    world.pass_until(50 * MS, watch.changed()).await.unwrap()
}

#[test]
fn an_observer_sees_the_changes_in_order_with_rising_terms() {
    test(async {
        let (world, other) = neighbours();
        let mut watch = other.registry.elect("billing").observe().unwrap();
        assert_eq!(next(&world, &mut watch).await, None);
        let mut terms = Vec::new();
        for candidate in ["a", "b", "c"] {
            let leadership = world.registry.elect("billing").candidate(candidate).campaign().await.unwrap();
            let seen = next(&world, &mut watch).await.unwrap();
            assert_eq!((seen.candidate(), seen.id), (Some(candidate), Some(leadership.id())));
            assert_eq!(seen.term, Some(leadership.term().get()));
            assert_eq!(watch.leader(), Some(&seen));
            terms.extend(seen.term);
            // The next comes in at once, so that no look finds it free.
            if candidate != "c" {
                leadership.resign().await.unwrap();
            } else {
                leadership.resign().await.unwrap();
                assert_eq!(next(&world, &mut watch).await, None);
                assert_eq!(watch.leader(), None);
            }
        }
        assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    });
}

#[test]
fn a_renewal_is_no_change() {
    test(async {
        let world = World::new();
        let election = world.registry.elect("billing");
        let _leads = election.campaign().await.unwrap();
        let mut watch = election.observe().unwrap();
        next(&world, &mut watch).await.unwrap();
        let mut change = Box::pin(watch.changed());
        for _ in 0..120 {
            assert!(poll_once(&mut change).is_pending());
            world.clock.advance(SECOND);
            calm().await;
        }
        assert!(world.store.calls(Op::Renew) >= 10);
    });
}

#[test]
fn a_look_that_fails_is_an_error_and_no_change() {
    test(async {
        let world = World::new();
        let election = world.registry.elect("billing");
        let leadership = election.campaign().await.unwrap();
        let mut watch = election.observe().unwrap();
        let seen = next(&world, &mut watch).await.unwrap();
        world.store.next(Op::Look, [Step::Fail, Step::Hang]);
        for _ in 0..2 {
            let error = world.pass_until(50 * MS, watch.changed()).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Outage);
            assert_eq!(watch.leader(), Some(&seen));
        }
        // The store answers again, and the same one leads.
        world.pass(10 * SECOND).await;
        let mut change = Box::pin(watch.changed());
        for _ in 0..10 {
            assert!(poll_once(&mut change).is_pending());
            world.pass(SECOND).await;
        }
        drop(change);
        leadership.resign().await.unwrap();
        assert_eq!(next(&world, &mut watch).await, None);
    });
}

#[test]
fn the_pace_of_the_looks_is_bounded_and_grows_while_they_fail() {
    test(async {
        let world = World::new();
        let election = world.registry.elect("billing").poll(10 * SECOND);
        let mut watch = election.observe().unwrap();
        next(&world, &mut watch).await;
        let before = world.store.calls(Op::Look);
        // A caller that drops the future, as in a `select!`, makes it look no sooner.
        for _ in 0..600 {
            assert!(poll_once(&mut Box::pin(watch.changed())).is_pending());
            world.clock.advance(SECOND);
            calm().await;
        }
        let looks = world.store.calls(Op::Look) - before;
        assert!((55..=125).contains(&looks), "{looks} looks in 600 s");

        let mut quick = world.registry.elect("billing").observe().unwrap();
        next(&world, &mut quick).await;
        world.store.always(Op::Look, Step::Fail);
        let (mut errors, end) = (0, world.clock.now().after(600 * SECOND));
        while world.clock.now() < end {
            world.pass_until(100 * MS, quick.changed()).await.unwrap_err();
            errors += 1;
        }
        assert!(errors < 400, "{errors} errors in 600 s");
    });
}

#[test]
fn the_end_of_a_lease_is_looked_at_at_once() {
    test(async {
        let (world, other) = neighbours();
        let leadership = world.registry.elect("billing").ttl(10 * SECOND).campaign().await.unwrap();
        let began = world.clock.now();
        let mut watch = other.registry.elect("billing").poll(3600 * SECOND).observe().unwrap();
        // The observer looks at a store whose leader has died: nobody renews.
        world.store.always(Op::Renew, Step::Hang);
        world.store.always(Op::Release, Step::Hang);
        world.store.always(Op::Abandon, Step::Hang);
        next(&world, &mut watch).await.unwrap();
        assert_eq!(next(&world, &mut watch).await, None);
        assert!(world.clock.now().since(began) < 11 * SECOND);
        drop(leadership);
    });
}

/// As a store does that keeps a holder until another claim takes the lock.
#[test]
fn a_leader_that_is_shown_after_its_lease_is_looked_at_ever_more_seldom() {
    test(async {
        let world = World::new();
        let _leads = world.registry.elect("billing").campaign().await.unwrap();
        let mut watch = world.registry.elect("billing").poll(SECOND).observe().unwrap();
        next(&world, &mut watch).await.unwrap();
        world.store.always(Op::Look, Step::Stale(3600 * SECOND));
        let mut change = Box::pin(watch.changed());
        // Before its first renewal.
        for _ in 0..9000 {
            assert!(poll_once(&mut change).is_pending());
            world.clock.advance(MS);
        }
        let looks = world.store.calls(Op::Look);
        assert!((10..=40).contains(&looks), "{looks} looks in 9 s");
    });
}

#[test]
fn an_observer_says_within_which_time_a_leadership_began() {
    test(async {
        let (world, other) = neighbours();
        let wall = || UNIX_EPOCH + Duration::from_millis(world.clock.wall_ms());
        let election = world.registry.elect("billing");
        let first = election.campaign().await.unwrap();
        let mut watch = other.registry.elect("billing").observe().unwrap();
        let seen = next(&world, &mut watch).await.unwrap();
        assert_eq!((seen.leads_after, seen.seen), (None, wall()));
        world.pass(10 * SECOND).await;
        first.resign().await.unwrap();
        let before = wall();
        let _second = election.campaign().await.unwrap();
        let seen = next(&world, &mut watch).await.unwrap();
        let after = seen.leads_after.unwrap();
        assert!(after <= before && before <= seen.seen && seen.seen <= wall());
    });
}

/// The look finds nobody, and somebody leads before its answer is here.
#[test]
fn a_leadership_that_begins_while_an_answer_is_on_its_way_is_not_dated_too_late() {
    test(async {
        let (world, other) = neighbours();
        let mut watch = world.registry.elect("billing").observe().unwrap();
        world.store.next(Op::Look, [Step::Late(SECOND)]);
        let mut nobody = Box::pin(watch.changed());
        assert!(poll_once(&mut nobody).is_pending());
        calm().await;
        assert_eq!(world.store.calls(Op::Look), 1);
        let before = UNIX_EPOCH + Duration::from_millis(world.clock.wall_ms());
        let _leads = other.registry.elect("billing").campaign().await.unwrap();
        assert_eq!(world.pass_until(50 * MS, nobody).await.unwrap(), None);
        let seen = next(&world, &mut watch).await.unwrap();
        assert!(seen.leads_after.unwrap() <= before, "{seen:?}");
    });
}

#[test]
fn the_stream_goes_on_after_an_error_and_ends_with_a_shutdown() {
    test(async {
        let world = World::new();
        let election = world.registry.elect("billing");
        let leadership = election.campaign().await.unwrap();
        world.store.next(Op::Look, [Step::Fail]);
        let mut changes = pin!(election.observe().unwrap().into_stream());
        assert!(changes.next().await.unwrap().is_err());
        let seen = world.pass_until(50 * MS, changes.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(seen.id, Some(leadership.id()));
        leadership.resign().await.unwrap();
        world.pass_until(50 * MS, world.registry.shutdown(Duration::ZERO)).await;
        assert!(changes.next().await.is_none());
        let mut watch = election.observe().unwrap();
        assert_eq!(watch.changed().await.unwrap_err().kind(), &ErrorKind::ShutDown);
    });
}

#[test]
fn an_observer_that_would_look_all_the_time_is_refused() {
    let world = World::new();
    let error = world.registry.elect("billing").poll(9 * MS).observe().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "poll".into() });
    assert!(world.registry.elect("billing").poll(10 * MS).observe().is_ok());
}

/// Its text may be a secret; it is still the leader.
#[test]
fn the_lock_of_another_site_is_seen_too() {
    test(async {
        let world = World::new();
        let election = world.registry.elect("billing");
        let plain = world.lock("billing").name("a-function").acquire().await.unwrap();
        let seen = election.leader().await.unwrap().unwrap();
        assert_eq!(seen.candidate(), Some("a-function"));
        plain.release().await.unwrap();
        assert_eq!(election.leader().await.unwrap(), None);
        assert_eq!(world.memory.profile().kind, "memory");
    });
}
