//! The ids of a hold that is passed on inside of a process: each caller has its own there.

use dlock_runtime::{ErrorKind, HoldId, LossCause, Registry};

use crate::cohort::{member, waits};
use crate::inspect::{another_process, id_of};
use crate::support::{Op, SECOND, Step, World, calm, test};

fn own_id(registry: &Registry) -> HoldId {
    registry.held()[0].id
}

#[test]
fn an_id_of_an_earlier_caller_of_a_cohort_breaks_nothing() {
    test(async {
        let world = World::new();
        let first = member(&world).acquire().await.unwrap();
        let id = id_of(&world, "k").await;
        assert_eq!(own_id(&world.registry), id);
        let next = waits(member(&world));
        let last = waits(member(&world));
        calm().await;
        first.release().await.unwrap();
        let second = next.await.unwrap().unwrap();
        let of_second = id_of(&world, "k").await;
        assert_eq!(own_id(&world.registry), of_second);
        assert_eq!(world.registry.locks().page().await.unwrap().locks[0].state.holders[0].id, Some(of_second));
        assert!(!world.lock("k").break_hold(id).await.unwrap());
        second.confirm().await.unwrap();
        second.release().await.unwrap();
        let third = last.await.unwrap().unwrap();
        for earlier in [id, of_second] {
            assert!(!world.lock("k").break_hold(earlier).await.unwrap());
        }
        third.confirm().await.unwrap();
        assert_eq!(world.store.calls(Op::Acquire), 1);
        world.store.next(Op::Release, [Step::Hang]);
        let release = tokio::spawn(third.release());
        calm().await;
        assert!(!world.lock("k").break_hold(id).await.unwrap(), "the release is under way");
        world.pass(30 * SECOND).await;
        release.await.unwrap().unwrap();
    });
}

#[test]
fn a_broken_hold_of_a_cohort_is_not_passed_on() {
    test(async {
        let world = World::new();
        let first = member(&world).acquire().await.unwrap();
        let (next, last) = (waits(member(&world)), waits(member(&world)));
        calm().await;
        first.release().await.unwrap();
        let second = next.await.unwrap().unwrap();
        assert!(world.lock("k").break_hold(own_id(&world.registry)).by("alice").await.unwrap());
        let error = second.release().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
        let third = last.await.unwrap().unwrap();
        third.confirm().await.unwrap();
        third.release().await.unwrap();
    });
}

/// Between two callers the hold is in no list of this process.
#[test]
fn an_id_breaks_nothing_while_the_hold_goes_to_the_next_caller() {
    test(async {
        let world = World::new();
        let first = member(&world).acquire().await.unwrap();
        let id = id_of(&world, "k").await;
        let next = waits(member(&world));
        calm().await;
        world.store.next(Op::Reserve, [Step::Late(SECOND)]);
        let release = tokio::spawn(first.release());
        calm().await;
        assert!(world.registry.held().is_empty());
        assert!(!world.lock("k").break_hold(id).await.unwrap());
        world.pass(SECOND).await;
        release.await.unwrap().unwrap();
        next.await.unwrap().unwrap().confirm().await.unwrap();
    });
}

#[test]
fn in_another_process_the_id_of_a_cohort_is_that_of_its_hold_in_the_store() {
    test(async {
        let (world, other) = (World::new(), another_process);
        let other = other(&world);
        let first = member(&world).acquire().await.unwrap();
        let id = own_id(&world.registry);
        let next = waits(member(&world));
        calm().await;
        first.release().await.unwrap();
        let second = next.await.unwrap().unwrap();
        assert!(!other.lock("k").break_hold(own_id(&world.registry)).await.unwrap());
        second.confirm().await.unwrap();
        assert_eq!(other.lock("k").holders().await.unwrap().holders[0].id, Some(id));
        assert!(other.lock("k").break_hold(id).by("alice").await.unwrap());
        let error = second.confirm().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Lost(LossCause::Broken));
    });
}
